"""One prompt from the request to a waiting reply, in one transaction: who answers, which engine, is there room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy.orm import Session

from api.core import engines, generations
from api.core.answering import Answering
from api.core.auth import Actor
from api.core.errors import Invalid, Unavailable
from api.core.settings import Settings
from trainer_core.serve.order import Sampling, Variant


@dataclass(frozen=True)
class Question:
    """A prompt with everything that an engine needs for it."""

    messages: list[dict[str, Any]]
    sampling: Sampling
    tools: list[dict[str, Any]] | None = None
    variant: Variant = "tuned"
    device: Literal["auto", "cpu", "cuda"] = "auto"


@dataclass(frozen=True)
class Asked:
    generation_id: str
    engine_id: str


def ask(session: Session, answering: Answering, question: Question, actor: Actor, settings: Settings) -> Asked:
    """Raises Invalid, TooMany, Unavailable where no node runs engines."""
    if settings.max_engines == 0:
        raise Unavailable("engines are switched off here (max_engines is 0)", code="engines_off")
    if len(question.sampling.stop) != len(set(question.sampling.stop)):
        raise Invalid("stop: a text is named twice", param="stop")
    engine = engines.find_or_ask(session, answering.target, answering.name, question.device, actor)
    variant = "base" if answering.variant == "base" else question.variant
    prompt = {
        "variant": variant,
        "messages": question.messages,
        "tools": question.tools,
        "sampling": question.sampling.model_dump(mode="json"),
    }
    row = generations.ask(session, engine, prompt, actor, settings.engine_queue)
    return Asked(row.id, engine.id)


def give_up(session: Session, asked: Asked) -> None:
    """Cancel the reply; an engine that still waits for a node and that nobody else asked goes with it."""
    generations.cancel(session, asked.generation_id)
    if engines.n_open(session, asked.engine_id) == 0:
        engine = engines.get(session, asked.engine_id)
        if engine.state == engines.EngineState.QUEUED:
            engines.end(session, asked.engine_id)
