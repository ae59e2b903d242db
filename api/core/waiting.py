"""Which queued jobs may be placed at all, and why the others may not: those they depend on, and the wait after a fault.

The scheduler's query takes the conditions in; how the rest are ordered and placed is its own business.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import ColumnElement, exists, or_, select
from sqlalchemy.orm import Session, aliased

from api.core.dependency_tables import JobDependency
from api.core.states import State
from api.core.tables import Job


def ready(at: datetime) -> list[ColumnElement[bool]]:
    """Conditions on a queued job: its last try is far enough back, and every job it depends on has succeeded."""
    needed = aliased(Job)
    unmet = (
        exists()
        .where(JobDependency.job_id == Job.id, JobDependency.needs_id == needed.id)
        .where(needed.state != State.SUCCEEDED.value)
    )
    return [or_(Job.not_before.is_(None), Job.not_before <= at), ~unmet]


def reasons(session: Session, job_ids: Collection[str], at: datetime) -> dict[str, str]:
    """For those of the jobs that may not be placed yet, why, in words."""
    if not job_ids:
        return {}
    backing_off = select(Job.id, Job.not_before).where(Job.id.in_(sorted(job_ids)), Job.not_before > at)
    found: dict[str, list[str]] = {}
    unmet = (
        select(JobDependency.job_id, Job.id, Job.name, Job.state)
        .join(Job, Job.id == JobDependency.needs_id)
        .where(JobDependency.job_id.in_(sorted(job_ids)), Job.state != State.SUCCEEDED.value)
        .order_by(JobDependency.job_id, JobDependency.position)
    )
    for job_id, needs_id, name, state in session.execute(unmet):
        found.setdefault(job_id, []).append(f"{needs_id} ({name}), which is {state}")
    said = {job_id: f"waits for {', '.join(needed)}" for job_id, needed in found.items()}
    for job_id, not_before in session.execute(backing_off):
        if not_before is not None:
            wait_s = max(1.0, (not_before - at).total_seconds())
            said.setdefault(job_id, f"its last attempt failed; the next may start in {wait_s:.0f} s")
    return said
