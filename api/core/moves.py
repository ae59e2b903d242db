"""The one writer of jobs.state: a guarded UPDATE and its event in one transaction.

Zero rows updated means that somebody else is ahead; the caller drops what it was about to do. Terminal states are
never left, because no state names one as its predecessor.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, update
from sqlalchemy.orm import Session
from sqlalchemy.orm.util import identity_key

from api.core import events, webhooks
from api.core.db import now
from api.core.devices import take_back_placed
from api.core.errors import Conflict, NotFound
from api.core.events import NewEvent
from api.core.states import TERMINAL, Health, State, predecessors
from api.core.tables import Job

__all__ = ["NewEvent", "asked_by", "move", "request_cancel"]

NOT_ON_DEVICES = frozenset({State.VALIDATING, State.QUEUED, State.PAUSED})
CANCELLABLE_RUNS = frozenset({State.STARTING, State.RUNNING, State.PAUSING})


def move(
    session: Session,
    job_id: str,
    to: State,
    event: NewEvent,
    *,
    attempt: int | None = None,
    next_attempt: bool = False,
    only_from: Collection[State] | None = None,
    also: Sequence[ColumnElement[bool]] = (),
    **values: Any,
) -> bool:
    """Moves the job to `to` if its state may become that, and writes `event`. False: nothing was changed.

    `attempt` asks that this still is the newest attempt; `next_attempt` counts one more. `only_from` narrows the legal
    predecessors, `also` adds conditions on the row; `values` are further columns set by the same UPDATE.
    """
    legal = predecessors(to) if only_from is None else predecessors(to) & frozenset(only_from)
    guards = [Job.id == job_id, Job.state.in_(sorted(legal)), *also]
    if attempt is not None:
        guards.append(Job.attempt == attempt)
    if next_attempt:
        values["attempt"] = Job.attempt + 1
    changed = session.execute(
        update(Job)
        .where(*guards)
        .values(state=to.value, last_event_n=Job.last_event_n + 1, **(_on_entering(to, event.at or now()) | values))
        .returning(Job.last_event_n, Job.attempt)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    if changed is None:
        return False
    events.write(session, job_id, [event], last_n=changed.last_event_n, attempt=changed.attempt)
    webhooks.tell(session, job_id, to, event.message)
    _refresh_loaded(session, job_id)
    return True


def _on_entering(to: State, at: datetime) -> dict[str, Any]:
    """Columns that follow from the state alone."""
    if to in TERMINAL:
        return {"finished_at": at, "phase": None, "eta_s": None, "health": Health.OK.value}
    if to in (State.QUEUED, State.PAUSED):
        # A requeued job keeps its place in line, so queued_at is set once.
        # What it was asked to stop for is done, and so is the last wait: a further one comes with the move.
        rest: dict[str, Any] = {"phase": None, "eta_s": None, "health": Health.OK.value}
        return rest | {"queued_at": func.coalesce(Job.queued_at, at), "stop": None, "not_before": None}
    if to is State.RUNNING:
        return {"started_at": func.coalesce(Job.started_at, at)}
    return {}


def _refresh_loaded(session: Session, job_id: str) -> None:
    """A Job that this session holds already must not go on showing the old state."""
    loaded = session.identity_map.get(identity_key(Job, job_id))
    if loaded is not None:
        session.refresh(loaded)


def asked_by(name: str | None, event: NewEvent) -> NewEvent:
    """The event with the name of who asked for it."""
    if name is None:
        return event
    return replace(event, message=f"{event.message} (by {name})", data={**event.data, "by": name})


def request_cancel(session: Session, job_id: str, by: str | None = None) -> Job:
    """Asks for the job to be cancelled; asking twice is fine. Returns the job as it is now.

    A job that holds no process is cancelled at once; one that may hold some becomes `cancelling` until they are gone.
    `by` is the name of who asked. Raises NotFound, and Conflict with code `already_finished` in a terminal state.
    """
    # Attempt before job, as everywhere: a second order of locks would be a deadlock.
    was_unlaunched = take_back_placed(session, job_id)
    asked = asked_by(by, NewEvent("cancel_requested", "Cancelling: the run was asked to stop"))
    done = asked_by(by, NewEvent("cancelled", "Cancelled"))
    while True:
        if move(session, job_id, State.CANCELLED, done, only_from=NOT_ON_DEVICES, stop="cancel"):
            break
        if move(session, job_id, State.CANCELLING, asked, only_from=CANCELLABLE_RUNS, stop="cancel"):
            break
        job = session.get(Job, job_id, populate_existing=True)
        if job is None:
            raise NotFound(f"there is no job {job_id!r}")
        if State(job.state) in TERMINAL:
            raise Conflict(
                f"the job is {job.state} already; only a job that is not finished can be cancelled",
                code="already_finished",
            )
        if job.state == State.CANCELLING:
            break
    if was_unlaunched:
        early = asked_by(by, NewEvent("cancelled", "Cancelled before any process was started"))
        move(session, job_id, State.CANCELLED, early)
    return session.get_one(Job, job_id, populate_existing=True)
