"""New jobs made of earlier ones (retry, clone), and what may be changed in a job that exists.

A job is never run a second time: what is tried again is a new job with a history of its own.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints, ValidationError
from sqlalchemy import delete
from sqlalchemy.orm import Session

from api.core import events, jobs, limits
from api.core.auth import Actor
from api.core.db import now
from api.core.errors import Conflict, Invalid
from api.core.events import NewEvent
from api.core.moves import asked_by
from api.core.resolve import refused
from api.core.settings import Settings
from api.core.specs import (
    MAX_LABELS,
    CheckpointName,
    ContinueFrom,
    JobSpec,
    LabelKey,
    LabelValue,
    TimeLimit,
    plain_text,
)
from api.core.states import TERMINAL, State
from api.core.tables import Job, JobLabel
from trainer_core.contract import Frozen
from trainer_core.numbers import WholeNumber
from trainer_core.problems import from_validation_error

RETRIED = (State.FAILED, State.CANCELLED)
NOT_STARTED = (State.VALIDATING, State.QUEUED, State.PAUSED)


class RetrySpec(Frozen):
    """The body of a retry; null begins anew."""

    checkpoint: CheckpointName | None = Field(
        default=None, description="best, last or a step of the earlier job, to go on from; null: from the start."
    )


class JobPatch(Frozen):
    """What may be changed in a job. What is left out stays; null takes away."""

    labels: dict[LabelKey, LabelValue | None] = Field(
        default_factory=dict, description="Put over those it has; null takes one away. At any time."
    )
    notes: Annotated[str, StringConstraints(max_length=20_000), AfterValidator(plain_text)] | None = Field(
        default=None, description="At any time."
    )
    priority: Annotated[WholeNumber, Field(ge=-1000, le=1000, description="Only while it waits.")] = 0
    time_limit_s: TimeLimit | None = Field(default=None, description="Only while it waits.")


def spec_now(job: Job) -> JobSpec:
    """What the job asks for, as changed since it was sent."""
    changed = {name: getattr(job, name) for name in ("labels", "notes", "priority", "time_limit_s")}
    return JobSpec.model_validate({**job.spec, **changed})


def retry(
    session: Session, job: Job, wanted: RetrySpec, actor: Actor, idempotency_key: str | None, settings: Settings
) -> tuple[Job, bool]:
    """A new job like one that failed or was cancelled, and whether it is new. Raises as `jobs.create`, and Conflict."""
    if job.state not in RETRIED:
        hint = "clone it instead" if State(job.state) in TERMINAL else "it may still succeed"
        raise Conflict(
            f"the job is {job.state}; only one that failed or was cancelled is retried: {hint}", code="not_retryable"
        )
    spec = spec_now(job)
    if wanted.checkpoint is not None:
        spec = spec.model_copy(update={"continue_from": ContinueFrom(job=job.id, checkpoint=wanted.checkpoint)})
    made, is_new = jobs.create(session, spec, actor, idempotency_key, settings)
    if is_new:
        start = "from the start" if wanted.checkpoint is None else f"from its checkpoint {wanted.checkpoint}"
        _say_origin(session, made, NewEvent("retry_of", f"A retry of {job.id}, {start}", data={"job": job.id}), actor)
    return made, is_new


def clone(
    session: Session, job: Job, patch: dict[str, Any], actor: Actor, idempotency_key: str | None, settings: Settings
) -> tuple[Job, bool]:
    """A new job like this one, with a JSON merge patch (RFC 7396) put over its body. Raises as `jobs.create`."""
    try:
        spec = JobSpec.model_validate(merged(spec_now(job).model_dump(mode="json"), patch))
    except ValidationError as invalid:
        raise refused(from_validation_error(invalid, JobSpec)) from invalid
    made, is_new = jobs.create(session, spec, actor, idempotency_key, settings)
    if is_new:
        changed = ", ".join(sorted(patch)) or "nothing"
        event = NewEvent("clone_of", f"A clone of {job.id}; changed: {changed}", data={"job": job.id})
        _say_origin(session, made, event, actor)
    return made, is_new


def merged(target: Any, patch: Any) -> Any:
    """RFC 7396: objects are merged, null takes a key away, everything else replaces what was there."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def _say_origin(session: Session, job: Job, event: NewEvent, actor: Actor) -> None:
    events.append(session, job.id, [asked_by(actor.name, event)])
    session.refresh(job)


def change(session: Session, job_id: str, patch: JobPatch, by: str) -> Job:
    """Changes what was sent of `patch`. Raises NotFound, Invalid, and Conflict (`already_started`) for what shapes a
    run that has begun."""
    job = session.get_one(Job, jobs.get(session, job_id).id, populate_existing=True, with_for_update=True)
    said = {name: getattr(patch, name) for name in sorted(patch.model_fields_set)}
    for name in ("priority", "time_limit_s"):
        if name in said and job.state not in NOT_STARTED:
            raise Conflict(
                f"the job is {job.state}; {name} can be changed only while it waits", code="already_started", param=name
            )
    if "labels" in said:
        said["labels"] = _labelled(session, job, said["labels"])
    if said.get("time_limit_s") is not None:
        _require_time(session, job, said["time_limit_s"])
    changes = {name: value for name, value in said.items() if getattr(job, name) != value}
    for name, value in changes.items():
        setattr(job, name, value)
    session.flush()
    if changes:
        shown = {name: value for name, value in changes.items() if name != "notes"}
        words = ", ".join(f"{name} is now {value}" if name in shown else name for name, value in changes.items())
        events.append(session, job.id, [asked_by(by, NewEvent("changed", f"Changed: {words}", data=shown))])
    session.refresh(job)
    return job


def _labelled(session: Session, job: Job, patch: dict[str, str | None]) -> dict[str, str]:
    labels: dict[str, str] = merged(job.labels, patch)
    if len(labels) > MAX_LABELS:
        raise Invalid(f"a job has at most {MAX_LABELS} labels, this would make {len(labels)}", param="labels")
    session.execute(delete(JobLabel).where(JobLabel.job_id == job.id).execution_options(synchronize_session=False))
    session.add_all(JobLabel(job_id=job.id, key=key, value=value) for key, value in labels.items())
    return labels


def _require_time(session: Session, job: Job, limit_s: int) -> None:
    used_s = limits.used_s(session, job.id, now())
    if used_s >= limit_s:
        message = f"the job has run for {used_s:,.0f} s already; expected a longer limit than that, found {limit_s} s"
        raise Invalid(message, param="time_limit_s", code="time_limit_used_up")
