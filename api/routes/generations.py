"""Prompts answered by a model and by what was trained of it, and the engines that do it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path, Request
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session
from starlette.responses import JSONResponse, Response, StreamingResponse

from api.core import asking, engines
from api.core.asking import Asked, Question
from api.core.auth import Actor, Permission
from api.core.engine_tables import Engine
from api.core.errors import TrainyardError
from api.core.generate_spec import GenerateSpec, plain
from api.deps import PartsDep, ReadSession, WriteSession, allow
from api.relay import Relay, Waiting
from api.schemas import Page, refusals
from api.tuned_names import named
from trainer_core.serve.order import Sampling

router = APIRouter(prefix="/v1", tags=["generations"])

Reader = Annotated[Actor, allow(Permission.JOBS_READ)]
Writer = Annotated[Actor, allow(Permission.JOBS_WRITE)]
EngineId = Annotated[str, Path(description="The engine's id.", examples=["eng_01k3f9c8w4m1q7x2s5v8zt"])]
EXAMPLES = {
    "job": {
        "summary": "A job's best checkpoint",
        "value": {"model": "job_...", "messages": [{"role": "user", "content": "Say 7"}], "max_tokens": 32},
    }
}
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The reply, or a stream of it.",
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "example": 'event: engine\ndata: {"id": "eng_...", "state": "starting"}\n\nevent: piece\ndata: '
                '{"text": "It is"}\n\nevent: done\ndata: {"finish_reason": "stop", ...}\n\n',
            }
        },
    }
}


class EngineOut(BaseModel):
    id: str
    model: str
    state: Literal["queued", "starting", "ready", "ended"]
    node: str | None
    device: str | None = Field(description="cpu, or cuda with its index.")
    info: dict[str, Any] = Field(description="Once it is ready: variants, context_length, notes.")
    cause: dict[str, Any] | None = Field(description="Why it ended, where that was no wish.")
    created_at: datetime
    used_at: datetime
    ended_at: datetime | None


@router.post("/generations", summary="Answer a prompt", responses=refusals(400, 404, 429, 503) | STREAM)
async def generate(
    spec: Annotated[GenerateSpec, Body(openapi_examples=EXAMPLES)], request: Request, parts: PartsDep, actor: Writer
) -> Response:
    """The reply as JSON, or with `Accept: text/event-stream` piece by piece: `engine` while one is started, `piece`s,
    then `done` or `error`. The engine stays for the next prompt until it is idle. Whoever hangs up cancels."""

    def ask(session: Session) -> Asked:
        found = named(session, spec.model, str(spec.checkpoint))
        sampling = Sampling.model_validate(spec.model_dump(include=set(Sampling.model_fields)))
        tools = [tool.model_dump(mode="json", exclude_none=True) for tool in spec.tools or []]
        question = Question(plain(spec.messages), sampling, tools or None, spec.variant, spec.device)
        return asking.ask(session, found, question, actor, parts.settings)

    relay = Relay(parts, request, ask)
    if "text/event-stream" in request.headers.get("accept", ""):
        return await _streamed(relay)
    text = "".join([word async for word in relay.words() if isinstance(word, str)])
    return JSONResponse({"text": text, **relay.outcome})


async def _streamed(relay: Relay) -> Response:
    words = relay.words()
    first = await anext(words)  # what cannot be asked is answered as such, with its status

    async def events() -> AsyncIterator[bytes]:
        try:
            yield _event(first)
            async for word in words:
                yield _event(word)
            yield _sse("done", relay.outcome)
        except TrainyardError as error:
            yield _sse("error", {"code": error.code, "message": error.message, "param": error.param})
        finally:
            await words.aclose()

    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(events(), media_type="text/event-stream", headers=headers)


def _event(word: str | Waiting) -> bytes:
    if isinstance(word, str):
        return _sse("piece", {"text": word})
    return _sse("engine", {"id": word.engine_id, "state": word.state})


def _sse(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


@router.get("/engines", summary="Engines", responses=refusals())
def list_engines(session: ReadSession, _actor: Reader) -> Page[EngineOut]:
    """Those that live and those that ended within the last hour, newest first."""
    return Page(data=[engine_out(row) for row in engines.listing(session)], has_more=False, next=None)


@router.delete("/engines/{engine_id}", status_code=204, summary="End an engine", responses=refusals(404))
def end_engine(engine_id: EngineId, session: WriteSession, _actor: Writer) -> None:
    """Its process ends within seconds, and its device is free. Replies that are being written end."""
    engines.end(session, engines.get(session, engine_id).id)


def engine_out(row: Engine) -> EngineOut:
    device = None if row.node_name is None else "cpu" if row.device_index is None else f"cuda:{row.device_index}"
    names = ("id", "state", "info", "cause", "created_at", "used_at", "ended_at")
    values = {name: getattr(row, name) for name in names}
    return EngineOut(model=row.model_name, node=row.node_name, device=device, **values)
