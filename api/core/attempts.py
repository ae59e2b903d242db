"""Attempts: one try at a job, from its placement on devices to its end.

The states only go forward (placed, launched, running, ended), each by a guarded UPDATE, so a doubled message launches
nothing twice and an ended attempt is heard no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from api.core import devices, events
from api.core.db import now
from api.core.fencing import Lost, live
from api.core.ids import new_id
from api.core.kept import add_artifact, add_checkpoint, remove_checkpoint
from api.core.moves import NewEvent, move
from api.core.outcomes import Outcome, end
from api.core.states import AttemptState, Health, State
from api.core.tables import Attempt, Job, Node
from api.core.telemetry import heard_again, take_logs, take_records
from api.core.wishes import request_leave, stop_at_limit

__all__ = [
    "Answer",
    "Lost",
    "Outcome",
    "add_artifact",
    "add_checkpoint",
    "beat",
    "claim_launch",
    "end",
    "place",
    "placed_on",
    "record_process",
    "remove_checkpoint",
    "request_preempt",
    "take_logs",
    "take_records",
]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a supervisor is told when it beats. `stop` says why to stop: the job's wish, such as cancel."""

    kind: Literal["go", "stop", "lost"]
    stop: str | None = None


class _Taken(Exception):
    """A device was taken meanwhile, or the node takes no work any more; undoes the savepoint."""


def place(session: Session, job_id: str, node_id: str, device_indexes: list[int]) -> Attempt | None:
    """Puts a queued job on devices of a node: queued to starting, attempt + 1, all devices or none.

    None: the job is not queued any more, a device is taken or gone, or the node is held; nothing was changed then.
    """
    if not device_indexes or len(set(device_indexes)) != len(device_indexes):
        raise ValueError(f"expected one or more different device indexes, found {device_indexes}")
    try:
        with session.begin_nested():
            return _place(session, job_id, node_id, device_indexes)
    except _Taken:
        session.expire_all()
        return None


def _place(session: Session, job_id: str, node_id: str, device_indexes: list[int]) -> Attempt | None:
    # Shared with other placements; whoever holds the node back waits for this one and then sees it.
    query = select(Node.name).where(Node.id == node_id, Node.hold.is_(None)).with_for_update(read=True)
    name = session.scalar(query)
    if name is None:
        return None
    words = "device " if len(device_indexes) == 1 else "devices "
    event = NewEvent("placed", f"Placed on {name}, {words}{', '.join(map(str, device_indexes))}", data={"node": name})
    if not move(session, job_id, State.STARTING, event, next_attempt=True, stop=None):
        return None
    number = session.scalars(select(Job.attempt).where(Job.id == job_id)).one()
    attempt = Attempt(
        id=new_id("att"),
        job_id=job_id,
        number=number,
        state=AttemptState.PLACED.value,
        node_id=node_id,
        devices=list(device_indexes),
        placed_at=now(),
    )
    session.add(attempt)
    session.flush()
    if not devices.take(session, attempt.id, node_id, device_indexes):
        raise _Taken
    return attempt


def request_preempt(session: Session, job_id: str, reason: str) -> bool:
    """Asks the job's run to leave its devices at a checkpoint, for others; the job is queued again for free.

    False: it is on no devices, or on its way off them already. After the commit nudge its supervisor: `nudge_stop`.
    """
    return request_leave(session, job_id, "preempt", reason)


def placed_on(session: Session, node_id: str) -> list[Attempt]:
    """Attempts to be launched on the node, oldest first; none whose job was asked to stop meanwhile."""
    query = (
        select(Attempt)
        .join(Job, Job.id == Attempt.job_id)
        .where(
            Attempt.node_id == node_id, Attempt.state == AttemptState.PLACED.value, Job.state == State.STARTING.value
        )
        .order_by(Attempt.placed_at, Attempt.id)
    )
    return list(session.scalars(query))


def claim_launch(session: Session, attempt_id: str, *, at: datetime | None = None) -> bool:
    """placed to launched, for exactly one caller; everybody else gets False and launches nothing.

    It counts as the first beat: a supervisor that then dies before its own first word is found by the same sweep.
    """
    instant = at or now()
    starting = select(Job.id).where(Job.state == State.STARTING.value)
    won = session.execute(
        update(Attempt)
        .where(Attempt.id == attempt_id, Attempt.state == AttemptState.PLACED.value, Attempt.job_id.in_(starting))
        .values(state=AttemptState.LAUNCHED.value, launched_at=instant, beat_at=instant)
        .returning(Attempt.id)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    return won is not None


def record_process(
    session: Session,
    attempt_id: str,
    *,
    supervisor: dict[str, Any] | None = None,
    launcher: dict[str, Any] | None = None,
    run_folder: str | None = None,
) -> None:
    """Remembers who runs the attempt and where; what is null stays as it is. Raises Lost where it is fenced off."""
    attempt, _job = live(session, attempt_id)
    if supervisor is not None:
        attempt.supervisor = supervisor
    if launcher is not None:
        attempt.launcher = launcher
    if run_folder is not None:
        attempt.run_folder = run_folder
    session.flush()


def beat(session: Session, attempt_id: str, *, at: datetime | None = None) -> Answer:
    """The supervisor's sign of life, and its answer: go on, stop, or lost (fenced: stop at once and write nothing)."""
    try:
        attempt, job = live(session, attempt_id)
    except Lost:
        return Answer("lost")
    instant = at or now()
    attempt.beat_at = instant
    session.flush()
    if job.health == Health.UNREACHABLE:
        events.append(session, job.id, [heard_again()])
        session.execute(
            update(Job)
            .where(Job.id == job.id, Job.health == Health.UNREACHABLE.value)
            .values(health=Health.OK.value)
            .execution_options(synchronize_session=False)
        )
        session.refresh(job)
    stop = stop_at_limit(session, job, instant)
    return Answer("go") if stop is None else Answer("stop", stop)
