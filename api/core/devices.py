"""Devices are handed out by a placement and given back when an attempt ends; nothing counts processes."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from api.core.db import now
from api.core.states import AttemptState
from api.core.tables import Attempt, Device

NEVER_LAUNCHED = {"result": "stopped", "exit_code": None, "signal": None, "cause": None}


def take(session: Session, attempt_id: str, node_id: str, indexes: Sequence[int]) -> bool:
    """Gives the devices to the attempt: all of them, or none and False where any is taken or gone."""
    free = (
        select(Device.index)
        .where(
            Device.node_id == node_id,
            Device.index.in_(indexes),
            Device.attempt_id.is_(None),
            Device.engine_id.is_(None),
            Device.is_present.is_(True),
        )
        .order_by(Device.index)  # one order of locks for everybody
        .with_for_update()
    )
    if len(session.scalars(free).all()) != len(indexes):
        return False
    session.execute(
        update(Device)
        .where(Device.node_id == node_id, Device.index.in_(indexes))
        .values(attempt_id=attempt_id)
        .execution_options(synchronize_session=False)
    )
    return True


def free(session: Session, attempt_id: str) -> None:
    """Gives back every device of the attempt."""
    held = select(Device.index).where(Device.attempt_id == attempt_id).order_by(Device.node_id, Device.index)
    session.scalars(held.with_for_update()).all()
    session.execute(
        update(Device)
        .where(Device.attempt_id == attempt_id)
        .values(attempt_id=None)
        .execution_options(synchronize_session=False)
    )


def take_back_placed(session: Session, job_id: str) -> bool:
    """Ends the job's attempt if nobody has launched it yet, and frees its devices. False: there is no such attempt."""
    ended = session.scalars(
        update(Attempt)
        .where(Attempt.job_id == job_id, Attempt.state == AttemptState.PLACED.value)
        .values(state=AttemptState.ENDED.value, ended_at=now(), outcome=NEVER_LAUNCHED)
        .returning(Attempt.id)
        .execution_options(synchronize_session=False)
    ).all()
    for attempt_id in ended:
        free(session, attempt_id)
    return bool(ended)
