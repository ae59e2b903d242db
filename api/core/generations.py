"""Replies of engines: asked for, written by a node piece by piece, read as they grow, cancelled when nobody waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from api.core import engines
from api.core.auth import Actor
from api.core.clean import clean_json
from api.core.db import now
from api.core.engine_tables import Engine, Generation
from api.core.errors import Invalid, TooMany
from api.core.ids import new_id
from trainer_core.serve.order import Variant

# A reader says every few seconds that it still waits.
WANTED_FOR = timedelta(seconds=20)


class Growth(NamedTuple):
    """What a reader finds: the text after what it has, and where the reply and its engine stand."""

    state: str
    more: str
    outcome: dict[str, Any]
    engine_state: str
    engine_cause: dict[str, Any] | None


def ask(session: Session, engine: Engine, prompt: dict[str, Any], actor: Actor, max_waiting: int) -> Generation:
    """A reply that waits for its turn. Raises TooMany where too many do, Invalid for a variant that is not there."""
    variants: list[Variant] | None = engine.info.get("variants")
    if variants is not None and prompt["variant"] not in variants:
        raise Invalid(" ".join(engine.info["notes"]) or "there is no such variant", code="no_variant", param="variant")
    if engines.n_open(session, engine.id) >= max_waiting:
        raise TooMany(f"{max_waiting} prompts wait for {engine.model_name} already", code="engine_busy")
    row = Generation(
        id=new_id("gen"),
        engine_id=engine.id,
        state="queued",
        prompt=prompt,
        wanted_until=now() + WANTED_FOR,
        created_by=actor.id,
    )
    session.add(row)
    session.flush()
    return row


def read(session: Session, generation_id: str, n_seen: int) -> Growth | None:
    """None: it is gone with its engine."""
    query = (
        select(
            Generation.state,
            func.substr(Generation.text, n_seen + 1),
            Generation.outcome,
            Engine.state,
            Engine.cause,
        )
        .join(Engine, Engine.id == Generation.engine_id)
        .where(Generation.id == generation_id)
    )
    found = session.execute(query).one_or_none()
    return None if found is None else Growth(*found)


def still_wanted(session: Session, generation_id: str) -> None:
    values = {"wanted_until": now() + WANTED_FOR}
    session.execute(update(Generation).where(Generation.id == generation_id).values(**values))


def cancel(session: Session, generation_id: str) -> None:
    """Nobody waits for it any more; its engine goes on to the next within a moment."""
    conditions = [Generation.id == generation_id, Generation.state.in_(engines.OPEN_REPLIES)]
    session.execute(update(Generation).where(*conditions).values(state="cancelled", ended_at=now()))


# The node's side


def take_next(session: Session, engine_id: str) -> Generation | None:
    """The oldest that waits, to be written now. None: nothing waits."""
    waiting = select(Generation.id).where(Generation.engine_id == engine_id, Generation.state == "queued")
    chosen = session.scalar(waiting.order_by(Generation.created_at, Generation.id).limit(1))
    if chosen is None or not _move(session, chosen, "queued", state="running"):
        return None
    return session.get_one(Generation, chosen, populate_existing=True)


def write(session: Session, generation_id: str, text: str) -> bool:
    """Adds to the text. False: it is not wanted any more."""
    return _move(session, generation_id, "running", text=Generation.text + text.replace("\0", "\ufffd"))


def is_wanted(session: Session, generation_id: str) -> bool:
    conditions = [Generation.id == generation_id, Generation.state == "running", Generation.wanted_until > now()]
    return session.scalar(select(Generation.id).where(*conditions)) is not None


def finish(session: Session, generation_id: str, state: str, outcome: dict[str, Any]) -> bool:
    return _move(session, generation_id, "running", state=state, outcome=clean_json(outcome), ended_at=now())


def _move(session: Session, generation_id: str, of: str, **values: Any) -> bool:
    conditions = [Generation.id == generation_id, Generation.state == of]
    statement = update(Generation).where(*conditions).values(**values).returning(Generation.id)
    return bool(session.scalars(statement.execution_options(synchronize_session=False)).all())
