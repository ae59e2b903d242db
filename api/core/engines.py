"""Engines: asked for by a prompt, claimed by a node, held under a lease while somebody asks, and ended.

States go queued -> starting -> ready -> ended. A CUDA device that an engine holds carries its id, so that no
placement takes it; it is freed in the transaction that ends the engine.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, delete, exists, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from api.core.auth import Actor
from api.core.clean import clean_json
from api.core.db import now
from api.core.engine_tables import Engine, Generation
from api.core.errors import NotFound
from api.core.ids import is_id, new_id
from api.core.states import NodeState, State
from api.core.tables import Device, Job, Node
from trainer_core.contract import Cause

# How long it is kept what an engine was, and what it was asked and wrote.
KEPT = timedelta(hours=1)
REPLIES_KEPT = timedelta(minutes=10)
OPEN_REPLIES = ("queued", "running")


class EngineState(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    READY = "ready"
    ENDED = "ended"


HELD = (EngineState.STARTING.value, EngineState.READY.value)


def find_or_ask(session: Session, target: str, model_name: str, device: str, actor: Actor) -> Engine:
    """The engine that answers for the target, or a new one that waits for a node."""
    query = select(Engine).where(Engine.live_target == target).execution_options(populate_existing=True)
    if (found := session.scalar(query)) is not None:
        return found
    row = Engine(
        id=new_id("eng"),
        model_name=model_name[:300],
        target=target,
        live_target=target,
        device=device,
        state=EngineState.QUEUED.value,
        created_by=actor.id,
    )
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:  # another request asked for it this very moment
        return session.scalars(query).one()
    return row


def listing(session: Session) -> list[Engine]:
    """Engines that have not ended, and those that ended lately; newest first."""
    return list(session.scalars(select(Engine).order_by(Engine.id.desc()).limit(100)))


def get(session: Session, engine_id: str) -> Engine:
    row = session.get(Engine, engine_id) if is_id(engine_id) else None
    if row is None:
        raise NotFound("there is no such engine; it may have ended a while ago")
    return row


def n_open(session: Session, engine_id: str) -> int:
    """Replies that wait or are being written."""
    query = select(func.count()).where(Generation.engine_id == engine_id, Generation.state.in_(OPEN_REPLIES))
    return session.scalar(query) or 0


def end(session: Session, engine_id: str, cause: Cause | None = None, *, owner: str | None = None) -> bool:
    """End it, free its device and let nobody wait for its replies. False: it had ended, or is another owner's."""
    conditions: list[ColumnElement[bool]] = [Engine.id == engine_id, Engine.state != EngineState.ENDED.value]
    if owner is not None:
        conditions.append(Engine.owner == owner)
    kept = None if cause is None else clean_json(cause.model_dump(mode="json", exclude_none=True))
    values = {"state": EngineState.ENDED.value, "live_target": None, "ended_at": now(), "cause": kept}
    if not _changed(session, update(Engine).where(*conditions).values(**values).returning(Engine.id)):
        return False
    session.execute(update(Device).where(Device.engine_id == engine_id).values(engine_id=None))
    told = {"code": "engine_ended", "message": cause.message if cause else "the engine was ended", "param": None}
    if cause is not None:
        told["code"] = cause.code.value
    is_open = [Generation.engine_id == engine_id, Generation.state.in_(OPEN_REPLIES)]
    session.execute(update(Generation).where(*is_open).values(state="failed", outcome=told, ended_at=now()))
    return True


# The node's side


def claim(session: Session, node_name: str, owner: str, lease_s: float) -> Engine | None:
    """The engine that has waited longest and that this node has a device for, with that device. None: there is none.

    A free CUDA device is taken only while no job waits for one; an engine that may use either runs on the CPU then.
    """
    query = select(Engine).where(Engine.state == EngineState.QUEUED.value).order_by(Engine.created_at)
    for row in session.scalars(query.with_for_update(skip_locked=True)):
        index = None if row.device == "cpu" else _take_device(session, node_name, row.id)
        if index is None and row.device == "cuda":
            continue
        values = {
            "state": EngineState.STARTING.value,
            "owner": owner,
            "owned_until": now() + timedelta(seconds=lease_s),
            "node_name": node_name,
            "device_index": index,
        }
        is_queued = [Engine.id == row.id, Engine.state == EngineState.QUEUED.value]
        if _changed(session, update(Engine).where(*is_queued).values(**values).returning(Engine.id)):
            session.refresh(row)
            return row
        session.execute(update(Device).where(Device.engine_id == row.id).values(engine_id=None))
    return None


def jobs_wait(session: Session) -> bool:
    """Whether a job waits for devices: no engine keeps one from it."""
    return bool(session.scalar(select(exists().where(Job.state == State.QUEUED.value))))


def waiting(session: Session) -> bool:
    """Whether an engine waits for a node."""
    return bool(session.scalar(select(exists().where(Engine.state == EngineState.QUEUED.value))))


def renew(session: Session, engine_id: str, owner: str, lease_s: float, **values: Any) -> bool:
    """Hold the claim for `lease_s` more. False: it was ended, or is another's."""
    conditions = [Engine.id == engine_id, Engine.owner == owner, Engine.state.in_(HELD)]
    until = now() + timedelta(seconds=lease_s)
    statement = update(Engine).where(*conditions).values(owned_until=until, **values).returning(Engine.id)
    return _changed(session, statement)


def held_on(session: Session, node_name: str) -> list[Engine]:
    return list(session.scalars(select(Engine).where(Engine.node_name == node_name, Engine.state.in_(HELD))))


def silent(session: Session, silent_s: float) -> list[str]:
    """Engines whose owner was not heard of for so long beyond its lease."""
    before = now() - timedelta(seconds=silent_s)
    return list(session.scalars(select(Engine.id).where(Engine.state.in_(HELD), Engine.owned_until < before)))


def forget_old(session: Session, *, at: datetime | None = None) -> None:
    """Prompts and replies are nobody's history: they go soon after they were read."""
    instant = at or now()
    session.execute(delete(Generation).where(Generation.ended_at < instant - REPLIES_KEPT))
    old = select(Engine.id).where(Engine.ended_at < instant - KEPT)
    session.execute(delete(Generation).where(Generation.engine_id.in_(old)))
    session.execute(delete(Engine).where(Engine.ended_at < instant - KEPT))


def _take_device(session: Session, node_name: str, engine_id: str) -> int | None:
    if jobs_wait(session):
        return None
    query = (
        select(Device.node_id, Device.index)
        .join(Node, Node.id == Device.node_id)
        .where(Node.name == node_name, Node.state == NodeState.READY.value, Device.kind == "cuda", *is_free())
        .order_by(Device.index)
    )
    for node_id, index in session.execute(query).all():
        mine = [Device.node_id == node_id, Device.index == index, *is_free()]
        if _changed(session, update(Device).where(*mine).values(engine_id=engine_id).returning(Device.index)):
            return int(index)
    return None


def is_free() -> list[ColumnElement[bool]]:
    """Conditions of a device that neither a run nor an engine holds."""
    return [Device.attempt_id.is_(None), Device.engine_id.is_(None), Device.is_present.is_(True)]


def _changed(session: Session, statement: Any) -> bool:
    return bool(session.scalars(statement.execution_options(synchronize_session=False)).all())
