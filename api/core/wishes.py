"""What people and the scheduler ask of a job that may be running: pause, resume, leave its devices for a while.

A wish is a column of the job that its supervisor hears of at its next beat; nothing here touches a process. Cancel is
in `moves.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from sqlalchemy import update
from sqlalchemy.orm import Session

from api.core import events, limits
from api.core.db import now
from api.core.devices import take_back_placed
from api.core.errors import Conflict, NotFound
from api.core.events import NewEvent
from api.core.moves import asked_by, move
from api.core.states import TERMINAL, State
from api.core.tables import Job

STOPPABLE = frozenset({State.STARTING, State.RUNNING})
GOING = frozenset({State.VALIDATING, State.QUEUED, State.STARTING, State.RUNNING})
HINTS = {
    State.VALIDATING: "pause it once its check is over and it is queued",
    State.PAUSING: "its run is still saving; resume it once it is paused",
    State.CANCELLING: "it was cancelled",
}


def request_pause(session: Session, job_id: str, by: str | None = None) -> Job:
    """Asks for the job to be paused; asking twice is fine. Returns the job as it is now.

    A queued job is paused at once; a run saves a checkpoint first and is `pausing` until its processes are gone.
    Raises NotFound, and Conflict (`not_pausable`) in every other state.
    """
    was_unlaunched = take_back_placed(session, job_id)
    asked = asked_by(by, NewEvent("pause_requested", "Pausing: the run was asked to save a checkpoint and stop"))
    while True:
        if move(session, job_id, State.PAUSED, asked_by(by, NewEvent("paused", "Paused")), only_from=[State.QUEUED]):
            break
        if move(session, job_id, State.PAUSING, asked, only_from=STOPPABLE, stop="pause"):
            break
        state = _state_now(session, job_id)
        if state in (State.PAUSING, State.PAUSED):
            break
        if state not in STOPPABLE | {State.QUEUED}:
            raise _refused(state, "paused", "not_pausable")
    if was_unlaunched:
        early = asked_by(by, NewEvent("paused", "Paused before any process was started"))
        move(session, job_id, State.PAUSED, early, only_from=[State.PAUSING])
    return session.get_one(Job, job_id, populate_existing=True)


def request_resume(session: Session, job_id: str, by: str | None = None, *, at: datetime | None = None) -> Job:
    """Puts a paused job back into the queue, where it goes on from its newest complete checkpoint.

    A job that is not paused and under way already stays as it is. Raises NotFound, and Conflict: `not_paused`, or
    `time_limit_used_up` where a further attempt would be stopped at once.
    """
    job = session.get(Job, job_id, populate_existing=True, with_for_update=True)
    if job is None:
        raise NotFound(f"there is no job {job_id!r}")
    state = State(job.state)
    if state in GOING:
        return job
    if state is not State.PAUSED:
        raise _refused(state, "resumed", "not_paused")
    if limits.is_used_up(session, job, at or now()):
        raise Conflict(
            f"the time limit of {job.time_limit_s} s is used up; set a longer one first",
            code="time_limit_used_up",
            param="time_limit_s",
        )
    move(session, job_id, State.QUEUED, asked_by(by, NewEvent("resumed", "Queued again")), only_from=[State.PAUSED])
    return session.get_one(Job, job_id, populate_existing=True)


def request_leave(
    session: Session, job_id: str, wish: Literal["preempt", "drain"], reason: str, by: str | None = None
) -> bool:
    """Asks a run to save a checkpoint and give its devices back; the job is queued again, and no budget is touched.

    A placement that nobody launched is taken back at once. False: the job is on no devices, or on its way off them.
    """
    if take_back_placed(session, job_id):
        words = f"Queued again before any process was started: {reason}"
        return move(session, job_id, State.QUEUED, asked_by(by, NewEvent("requeued", words)))
    asked = session.scalars(
        update(Job)
        .where(Job.id == job_id, Job.state.in_(sorted(STOPPABLE)), Job.stop.is_(None))
        .values(stop=wish)
        .returning(Job.id)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    if asked is None:
        return False
    words = f"The run was asked to save a checkpoint and leave its devices: {reason}"
    events.append(session, job_id, [asked_by(by, NewEvent(f"{wish}_requested", words, data={"reason": reason}))])
    return True


def stop_at_limit(session: Session, job: Job, at: datetime) -> str | None:
    """Has a run stop whose time is used up; returns what it is to stop for, or null. Its attempt is locked."""
    if job.stop is not None or State(job.state) is not State.RUNNING or not limits.is_used_up(session, job, at):
        return job.stop
    won = session.scalars(
        update(Job)
        .where(Job.id == job.id, Job.state == State.RUNNING.value, Job.stop.is_(None))
        .values(stop="timeout")
        .returning(Job.id)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    if won is not None:
        words = f"The time limit of {job.time_limit_s:,} s is reached: the run saves a checkpoint and stops"
        events.append(session, job.id, [NewEvent("time_limit_reached", words, level="warning")])
    session.refresh(job)
    return job.stop


def _state_now(session: Session, job_id: str) -> State:
    job = session.get(Job, job_id, populate_existing=True)
    if job is None:
        raise NotFound(f"there is no job {job_id!r}")
    return State(job.state)


def _refused(state: State, wish: str, code: str) -> Conflict:
    hint = HINTS.get(state, "retry or clone it" if state in TERMINAL else "")
    return Conflict(f"the job is {state} and cannot be {wish}" + (f": {hint}" if hint else ""), code=code)
