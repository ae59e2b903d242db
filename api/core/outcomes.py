"""How an attempt ends and what becomes of its job. Devices are freed here and nowhere else but for unlaunched ones."""

from __future__ import annotations

import signal
from datetime import datetime
from typing import Literal

from sqlalchemy.orm import Session

from api.core import devices
from api.core.db import now
from api.core.events import NewEvent
from api.core.fencing import Lost, locked
from api.core.moves import move
from api.core.policy import Decision, decide, uses_budget
from api.core.settings import get_settings
from api.core.states import AttemptState, State
from api.core.tables import Attempt, Job
from trainer_core.contract import Cause, CauseCode, Frozen

Result = Literal["succeeded", "failed", "stopped", "died", "launch_failed", "lost"]


class Outcome(Frozen):
    """How the processes of an attempt ended, as its supervisor or the sweep saw it."""

    result: Result
    exit_code: int | None = None
    signal: int | None = None
    cause: Cause | None = None


def end(
    session: Session,
    attempt_id: str,
    outcome: Outcome,
    *,
    max_attempts: int | None = None,
    at: datetime | None = None,
) -> State:
    """Ends the attempt, frees its devices and moves its job by policy; returns the job's state afterwards.

    Call it only when the processes are gone, or fenced off. Ending twice in the same way changes nothing; an
    attempt that was ended otherwise raises Lost. `max_attempts` null: the setting `max_attempts_internal`.
    """
    attempt = locked(session, attempt_id)
    job = session.get_one(Job, attempt.job_id, populate_existing=True, with_for_update=True)
    stored = outcome.model_dump(mode="json")
    if attempt.state == AttemptState.ENDED:
        if attempt.outcome == stored:
            return State(job.state)
        raise Lost(f"attempt {attempt.number} of job {job.id} was ended at {attempt.ended_at} with {attempt.outcome}")
    attempt.state = AttemptState.ENDED.value
    attempt.ended_at = at or now()
    attempt.outcome = stored
    session.flush()
    devices.free(session, attempt.id)
    _settle(session, attempt, job, outcome, max_attempts or get_settings().max_attempts_internal)
    return State(session.get_one(Job, job.id, populate_existing=True).state)


def _settle(session: Session, attempt: Attempt, job: Job, outcome: Outcome, max_attempts: int) -> None:
    """Moves the job to where its state and the outcome lead; its row is locked, so nobody moves it meanwhile."""
    state, number = State(job.state), attempt.number
    if outcome.result == "succeeded":
        if state is State.STARTING:
            move(session, job.id, State.RUNNING, NewEvent("started", "Running"), attempt=number)
        move(session, job.id, State.SUCCEEDED, NewEvent("succeeded", "Succeeded"), attempt=number)
        return
    if state is State.CANCELLING:
        words = NewEvent("cancelled", _cancelled_words(outcome), data={"result": outcome.result})
        move(session, job.id, State.CANCELLED, words, attempt=number)
        return
    cause = cause_of(outcome)
    decision = decide(cause.code, job.n_failures, max_attempts)
    if state is State.PAUSING and decision is not Decision.STOP:
        move(session, job.id, State.PAUSED, NewEvent("paused", "Paused"), attempt=number)
        return
    n_failures = job.n_failures + uses_budget(cause.code)
    data = cause.model_dump(mode="json", exclude_none=True)
    if decision is Decision.STOP:
        failed = NewEvent("failed", f"Failed: {cause.message}", level="error", data=data)
        move(session, job.id, State.FAILED, failed, attempt=number, cause=data, n_failures=n_failures)
        return
    again = NewEvent("requeued", _requeued_words(cause, decision, n_failures, max_attempts), level="warning", data=data)
    move(session, job.id, State.QUEUED, again, attempt=number, n_failures=n_failures)


def _cancelled_words(outcome: Outcome) -> str:
    if outcome.result == "lost":
        return "Cancelled; the node was not heard of, so its processes stop by themselves once they can ask"
    return "Cancelled; no process of the run is left"


def _requeued_words(cause: Cause, decision: Decision, n_failures: int, max_attempts: int) -> str:
    budget = "" if decision is Decision.RETRY_FREE else f" (attempt {n_failures + 1} of {max_attempts} comes next)"
    return f"Queued again{budget}: {cause.message}"


def cause_of(outcome: Outcome) -> Cause:
    """Why an attempt that did not succeed ended, in words; the trainer's own cause where it named one."""
    if outcome.cause is not None:
        return outcome.cause
    details = outcome.model_dump(mode="json", include={"exit_code", "signal"}, exclude_none=True)
    match outcome.result:
        case "stopped":
            return Cause(code=CauseCode.PREEMPTED, message="the run was asked to leave its devices", details=details)
        case "lost":
            return Cause(code=CauseCode.NODE_LOST, message="the node was not heard of any more", details=details)
        case "launch_failed":
            return Cause(code=CauseCode.INTERNAL, message="the run could not be started", details=details)
        case _:
            return Cause(code=CauseCode.RANK_DIED, message=_death_words(outcome), details=details)


def _death_words(outcome: Outcome) -> str:
    if outcome.signal == signal.SIGKILL:
        return "killed by signal 9 (possibly out of memory)"
    if outcome.signal is not None:
        return f"killed by signal {outcome.signal}"
    if outcome.exit_code is not None:
        return f"the processes ended with exit code {outcome.exit_code} and named no cause; see the end of the log"
    return "the processes are gone and left no word; see the end of the log"
