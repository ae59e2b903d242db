"""How an attempt ends and what becomes of its job. Devices are freed here and nowhere else but for unlaunched ones."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from api.core import devices, events, exclusions, limits
from api.core.adapting import Adapted, step_down
from api.core.causes import Outcome, Result, cause_of, timeout
from api.core.db import now
from api.core.events import NewEvent
from api.core.fencing import Lost, locked
from api.core.moves import move
from api.core.policy import Budgets, Decision, Fault, backoff_s, decide, fault_of
from api.core.settings import Settings, get_settings
from api.core.states import AttemptState, State
from api.core.tables import Attempt, Checkpoint, Job, Node
from trainer_core.contract import Cause, CauseCode

__all__ = ["Outcome", "Result", "budgets", "cause_of", "end"]

OWNERS = {Fault.SERVICE: "the service's", Fault.NODE: "the node's", Fault.USER: "the job's own"}


def end(
    session: Session,
    attempt_id: str,
    outcome: Outcome,
    *,
    settings: Settings | None = None,
    at: datetime | None = None,
) -> State:
    """Ends the attempt, frees its devices and moves its job by policy; returns the job's state afterwards.

    Call it only when the processes are gone, or fenced off. Ending twice in the same way changes nothing; an
    attempt that was ended otherwise raises Lost. `settings` holds the budgets; null: this process's own.
    """
    instant = at or now()
    attempt = locked(session, attempt_id)
    job = session.get_one(Job, attempt.job_id, populate_existing=True, with_for_update=True)
    stored = outcome.model_dump(mode="json")
    if attempt.state == AttemptState.ENDED:
        if attempt.outcome == stored:
            return State(job.state)
        raise Lost(f"attempt {attempt.number} of job {job.id} was ended at {attempt.ended_at} with {attempt.outcome}")
    attempt.state = AttemptState.ENDED.value
    attempt.ended_at = instant
    attempt.outcome = stored
    session.flush()
    devices.free(session, attempt.id)
    _settle(session, attempt, job, outcome, settings or get_settings(), instant)
    return State(session.get_one(Job, job.id, populate_existing=True).state)


def budgets(settings: Settings) -> Budgets:
    return Budgets(
        service=settings.max_attempts_internal, node=settings.max_attempts_node, user=settings.max_attempts_user
    )


def _settle(session: Session, attempt: Attempt, job: Job, outcome: Outcome, settings: Settings, at: datetime) -> None:
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
    # The next try after a lack of memory is another one: no budget is touched, and the ladder has a foot.
    adapted = step_down(session, job, cause)
    decision = Decision.RETRY_FREE if adapted else decide(cause.code, job.faults, budgets(settings))
    if state is State.PAUSING and decision is not Decision.STOP:
        if adapted:
            _adapt(session, job, adapted)
        move(session, job.id, State.PAUSED, _paused(session, job, cause), attempt=number)
    elif decision is not Decision.STOP and job.time_limit_s is not None and limits.is_used_up(session, job, at):
        _fail(session, job, number, timeout(job.time_limit_s), job.faults)
    elif decision is Decision.STOP:
        _fail(session, job, number, cause, _counted(job, cause.code))
    elif adapted is not None:
        _adapt(session, job, adapted)
        data = cause.model_dump(mode="json", exclude_none=True)
        move(session, job.id, State.QUEUED, NewEvent("requeued", "Queued again", data=data), attempt=number)
    else:
        _requeue(session, attempt, job, cause, settings, at)


def _adapt(session: Session, job: Job, adapted: Adapted) -> None:
    session.execute(update(Job).where(Job.id == job.id).values(resolved=adapted.resolved.model_dump(mode="json")))
    events.append(session, job.id, [adapted.event])


def _fail(session: Session, job: Job, number: int, cause: Cause, faults: dict[str, int]) -> None:
    data = cause.model_dump(mode="json", exclude_none=True)
    failed = NewEvent("failed", f"Failed: {cause.message}", level="error", data=data)
    move(session, job.id, State.FAILED, failed, attempt=number, cause=data, **_counts(faults))


def _requeue(session: Session, attempt: Attempt, job: Job, cause: Cause, settings: Settings, at: datetime) -> None:
    data = cause.model_dump(mode="json", exclude_none=True)
    fault, faults = fault_of(cause.code), _counted(job, cause.code)
    values: dict[str, Any] = _counts(faults)
    budget = kept_from = ""
    if fault is not None:
        wait_s = backoff_s(faults[fault], settings.retry_backoff_s, settings.retry_backoff_max_s)
        values["not_before"] = at + timedelta(seconds=wait_s)
        allowed = budgets(settings).of(fault)
        budget = f" in {wait_s:g} s (attempt {faults[fault] + 1} of {allowed} by {OWNERS[fault]} faults)"
    if fault is Fault.NODE:
        values["excluded"] = exclusions.after_fault(session, job, attempt.node_id)
        added = [each for each in values["excluded"] if each not in job.excluded]
        if added:
            name = session.scalars(select(Node.name).where(Node.id == attempt.node_id)).one()
            kept_from = f"; it failed twice on {exclusions.words(added, name)} and keeps away from there"
    words = f"Queued again{budget}: {cause.message}{kept_from}"
    again = NewEvent("requeued", words, level="warning" if fault else "info", data=data)
    move(session, job.id, State.QUEUED, again, attempt=attempt.number, **values)


def _counted(job: Job, code: CauseCode) -> dict[str, int]:
    fault = fault_of(code)
    return dict(job.faults) if fault is None else {**job.faults, fault.value: job.faults.get(fault, 0) + 1}


def _counts(faults: dict[str, int]) -> dict[str, Any]:
    return {"faults": faults, "n_failures": sum(faults.values())}


def _paused(session: Session, job: Job, cause: Cause) -> NewEvent:
    step = session.scalar(select(func.max(Checkpoint.step)).where(Checkpoint.job_id == job.id))
    goes_on = "there is no checkpoint, so it will begin anew" if step is None else f"it will go on from step {step:,}"
    went_wrong = "" if fault_of(cause.code) is None else f". Its run did not stop by itself: {cause.message}"
    level = "warning" if went_wrong else "info"
    return NewEvent("paused", f"Paused; {goes_on}{went_wrong}", level=level, data={"checkpoint_step": step})


def _cancelled_words(outcome: Outcome) -> str:
    if outcome.result == "lost":
        return "Cancelled; the node was not heard of, so its processes stop by themselves once they can ask"
    return "Cancelled; no process of the run is left"
