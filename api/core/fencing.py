"""Whether an attempt may still speak: an ended one is fenced off, whatever its processes think.

Everything an attempt writes goes through `live`, which locks its row first: attempt before job, everywhere.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.core.errors import Conflict, NotFound
from api.core.states import AttemptState
from api.core.tables import Attempt, Job


class Lost(Conflict):
    """The attempt was ended, or a newer one exists: its processes must stop and write nothing more."""

    code = "attempt_lost"


def locked(session: Session, attempt_id: str) -> Attempt:
    """The attempt's row, locked until the transaction ends. Raises NotFound."""
    query = select(Attempt).where(Attempt.id == attempt_id).with_for_update()
    attempt = session.scalar(query.execution_options(populate_existing=True))
    if attempt is None:
        raise NotFound(f"there is no attempt {attempt_id!r}")
    return attempt


def live(session: Session, attempt_id: str) -> tuple[Attempt, Job]:
    """The attempt, locked, and its job as it is now. Raises Lost where the attempt is fenced off."""
    attempt = locked(session, attempt_id)
    # Read after the lock was had: an older snapshot could miss what the transaction we waited for has written.
    query = select(Job).where(Job.id == attempt.job_id).execution_options(populate_existing=True)
    job = session.scalars(query).one()
    if attempt.state == AttemptState.ENDED:
        raise Lost(f"attempt {attempt.number} of job {job.id} was ended at {attempt.ended_at}; stop its processes")
    if job.attempt != attempt.number:
        raise Lost(
            f"attempt {attempt.number} of job {job.id} was followed by attempt {job.attempt}; stop its processes"
        )
    return attempt, job
