"""Chat completions of finished models, their checkpoints and base models, by the engines that "Try it" uses."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request
from sqlalchemy.orm import Session
from starlette.responses import JSONResponse, Response, StreamingResponse

from api.core import asking
from api.core.asking import Asked
from api.core.auth import Actor, Permission
from api.core.errors import TrainyardError
from api.deps import PartsDep, allow
from api.errors import answer_for
from api.openai.chat_bodies import ChatBody
from api.openai.errors import rewritten
from api.relay import Relay, Waiting
from api.tuned_names import named

router = APIRouter(prefix="/openai/v1/chat", include_in_schema=False)

Writer = Annotated[Actor, allow(Permission.JOBS_WRITE)]


@dataclass(frozen=True)
class Completion:
    """What every part of one answer says of itself."""

    model: str
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(14)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, text: str, outcome: dict[str, Any]) -> dict[str, Any]:
        calls = _calls(outcome)
        message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else ""), "refusal": None}
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(outcome)}
        return self._part("chat.completion", [choice]) | {"usage": _usage(outcome)}

    def chunk(self, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return self._part("chat.completion.chunk", [choice])

    def usage(self, outcome: dict[str, Any]) -> dict[str, Any]:
        return self._part("chat.completion.chunk", []) | {"usage": _usage(outcome)}

    def _part(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}


@router.post("/completions")
async def create(body: Annotated[ChatBody, Body()], request: Request, parts: PartsDep, actor: Writer) -> Response:
    question = body.question()

    def ask(session: Session) -> Asked:
        return asking.ask(session, named(session, body.model), question, actor, parts.settings)

    relay, completion = Relay(parts, request, ask), Completion(body.model)
    words = relay.words()
    first = await _first_text(words)  # until then every refusal has a status of its own
    if body.stream:
        has_usage = body.stream_options is not None and body.stream_options.include_usage
        pieces = _streamed(relay, words, first, completion, has_usage=has_usage)
        return StreamingResponse(pieces, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
    text = first + "".join([word async for word in words if isinstance(word, str)])
    return JSONResponse(completion.whole(text, relay.outcome))


async def _first_text(words: AsyncGenerator[str | Waiting]) -> str:
    """The first piece; empty where the reply is."""
    async for word in words:
        if isinstance(word, str):
            return word
    return ""


async def _streamed(
    relay: Relay, words: AsyncGenerator[str | Waiting], first: str, completion: Completion, *, has_usage: bool
) -> AsyncIterator[bytes]:
    try:
        yield _data(completion.chunk({"role": "assistant", "content": first, "refusal": None}))
        async for word in words:
            if isinstance(word, str):
                yield _data(completion.chunk({"content": word}))
        calls = [{"index": index, **call} for index, call in enumerate(_calls(relay.outcome))]
        if calls:
            yield _data(completion.chunk({"tool_calls": calls}))
        yield _data(completion.chunk({}, _reason(relay.outcome)))
        if has_usage:
            yield _data(completion.usage(relay.outcome))
        yield b"data: [DONE]\n\n"
    except TrainyardError as error:  # the status is sent already: the client raises what the stream says
        answer = answer_for(error)
        yield _data({"error": rewritten(json.loads(bytes(answer.body))["error"], answer.status_code)})
    finally:
        await words.aclose()


def _calls(outcome: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": call}
        for call in outcome.get("tool_calls", [])
    ]


def _reason(outcome: dict[str, Any]) -> str:
    """A reply that was ended from here is over, whatever ended it: the contract has no word for that."""
    reason = str(outcome["finish_reason"])
    return "stop" if reason == "cancelled" else reason


def _usage(outcome: dict[str, Any]) -> dict[str, int]:
    n_prompt, n_reply = outcome["prompt_tokens"], outcome["completion_tokens"]
    return {"prompt_tokens": n_prompt, "completion_tokens": n_reply, "total_tokens": n_prompt + n_reply}


def _data(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()
