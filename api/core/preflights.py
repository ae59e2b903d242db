"""Preflights of validating jobs: claimed under a lease by a CPU worker, finished once."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, or_, select, update
from sqlalchemy.orm import Session

from api.core.clean import clean_json
from api.core.db import now
from api.core.events import NewEvent
from api.core.moves import move
from api.core.states import State
from api.core.tables import Job
from trainer_core.contract import PreflightReport


def claim(
    session: Session, job_id: str | None, owner: str, lease_s: float, *, at: datetime | None = None
) -> Job | None:
    """The job to preflight, for one owner until the lease is over; null `job_id` takes the oldest that waits.

    None: nothing waits, or another owner has it.
    """
    instant = at or now()
    candidates = select(Job.id).where(*unclaimed(instant)).order_by(Job.created_at, Job.id).limit(1)
    if job_id is not None:
        candidates = candidates.where(Job.id == job_id)
    # SKIP LOCKED lets owners that look at the same time take different jobs; SQLite has one writer at a time anyway.
    chosen = session.scalar(candidates.with_for_update(skip_locked=True))
    claimed = session.scalars(
        update(Job)
        .where(Job.id == chosen, *unclaimed(instant))
        .values(
            preflight_owner=owner,
            preflight_until=instant + timedelta(seconds=lease_s),
            n_preflights=Job.n_preflights + 1,
        )
        .returning(Job.id)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    return None if claimed is None else session.get_one(Job, claimed, populate_existing=True)


def renew(session: Session, job_id: str, owner: str, lease_s: float, *, at: datetime | None = None) -> bool:
    """Holds a claim for `lease_s` more, so that a lease can be short. False: it is not the owner's any more."""
    renewed = session.scalars(
        update(Job)
        .where(Job.id == job_id, Job.state.in_([State.VALIDATING.value]), Job.preflight_owner == owner)
        .values(preflight_until=(at or now()) + timedelta(seconds=lease_s))
        .returning(Job.id)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    return renewed is not None


def unclaimed(at: datetime) -> list[ColumnElement[bool]]:
    """Conditions on a job that waits for a preflight and that nobody works on."""
    return [Job.state == State.VALIDATING.value, or_(Job.preflight_until.is_(None), Job.preflight_until <= at)]


def finish(session: Session, job_id: str, owner: str, report: PreflightReport) -> bool:
    """Keeps the report and moves the job: to queued, or to failed with the cause.

    False, and nothing changed: the job was cancelled meanwhile, or the lease passed to another owner.
    """
    kept = clean_json(report.model_dump(mode="json"))
    mine = [Job.preflight_owner == owner]
    if report.ok:
        words = f"Checked: {report.planned_steps:,} steps over {report.n_train_rows:,} rows are planned"
        event = NewEvent("queued", words, data={"notes": list(report.notes)})
        planned = report.planned_steps or None
        return move(
            session,
            job_id,
            State.QUEUED,
            event,
            also=mine,
            only_from=[State.VALIDATING],
            preflight=kept,
            planned_steps=planned,
            preflight_until=None,
        )
    assert report.cause is not None  # the report's own validator says so
    cause = clean_json(report.cause.model_dump(mode="json", exclude_none=True))
    event = NewEvent("failed", f"Checked before the start, and it cannot run: {report.cause.message}", "error", cause)
    return move(
        session,
        job_id,
        State.FAILED,
        event,
        also=mine,
        only_from=[State.VALIDATING],
        preflight=kept,
        cause=cause,
        preflight_until=None,
    )
