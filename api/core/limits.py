"""Time limits: how long a job's attempts have run, all together, and whether that is all it was given.

Running is from the trainer's first record to the end of the attempt. An attempt that was lost counts until it was last
heard of: what nobody knows of is not held against the job.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.core.tables import Attempt, Job


def used_s(session: Session, job_id: str, at: datetime) -> float:
    """Seconds that the job's attempts have run so far."""
    query = select(Attempt).where(Attempt.job_id == job_id, Attempt.started_at.is_not(None))
    return sum(_ran_s(attempt, at) for attempt in session.scalars(query))


def _ran_s(attempt: Attempt, at: datetime) -> float:
    assert attempt.started_at is not None
    is_lost = attempt.outcome is not None and attempt.outcome["result"] == "lost"
    until = (attempt.beat_at if is_lost else attempt.ended_at) or at
    return max(0.0, (until - attempt.started_at).total_seconds())


def is_used_up(session: Session, job: Job, at: datetime) -> bool:
    return job.time_limit_s is not None and used_s(session, job.id, at) >= job.time_limit_s
