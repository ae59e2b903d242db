"""Jobs as answers show them, with what they wait for: a place in the queue, other jobs, or the time of the next try."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from api.core import scheduling, waiting
from api.core.db import now
from api.core.settings import Settings
from api.core.states import State
from api.core.tables import Job
from api.job_views import job_brief, job_out
from api.schemas import JobBrief, JobOut


def describe_job(session: Session, job: Job, settings: Settings) -> JobOut:
    """Everything known of a job."""
    is_waiting = job.state == State.QUEUED
    standing = scheduling.standings(session, settings).get(job.id) if is_waiting else None
    held_back = waiting.reasons(session, [job.id], now()) if is_waiting and standing is None else {}
    return job_out(job, standing, held_back.get(job.id))


def describe_jobs(session: Session, found: Sequence[tuple[Job, str | None]], settings: Settings) -> list[JobBrief]:
    """Jobs in a list, each with its metric for best."""
    queued = [job.id for job, _ in found if job.state == State.QUEUED]
    standings = scheduling.standings(session, settings) if queued else {}
    held_back = waiting.reasons(session, [job_id for job_id in queued if job_id not in standings], now())
    return [job_brief(job, metric, standings.get(job.id), held_back.get(job.id)) for job, metric in found]
