"""Jobs that start only once others have succeeded.

A job can name only jobs that exist already, and what it names never changes: so there are no circles. When one of
those fails or is cancelled, whoever waits for it is cancelled with the reason, and in turn whoever waits for that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from api.core.db import Database
from api.core.dependency_tables import JobDependency
from api.core.events import NewEvent
from api.core.ids import is_id
from api.core.moves import move
from api.core.states import State
from api.core.tables import Job
from trainer_core.problems import Problem, show

HOPELESS = (State.FAILED.value, State.CANCELLED.value)
NOT_STARTED = (State.VALIDATING, State.QUEUED, State.PAUSED)


def check(session: Session, wanted: Sequence[str]) -> Iterator[Problem]:
    """What is wrong with the `depends_on` of a new job."""
    known = sorted({job_id for job_id in wanted if is_id(job_id)})
    rows = session.execute(select(Job.id, Job.state).where(Job.id.in_(known))) if known else ()
    states = {row[0]: row[1] for row in rows}
    for place, job_id in enumerate(wanted):
        param = f"depends_on[{place}]"
        if job_id in wanted[:place]:
            yield Problem(param, "names the same job twice", "duplicate", "Leave it out.", show(job_id))
        elif job_id not in states:
            yield Problem(
                param, "there is no such job", "not_found", "A job can wait only for earlier ones.", show(job_id)
            )
        elif states[job_id] in HOPELESS:
            message = f"that job is {states[job_id]}, so this one could never start"
            yield Problem(param, message, "dependency_failed", "Retry that job and name the new one.", show(job_id))


def keep(session: Session, job_id: str, wanted: Sequence[str]) -> None:
    """Writes down what the new job waits for."""
    session.add_all(
        JobDependency(job_id=job_id, needs_id=needs_id, position=place) for place, needs_id in enumerate(wanted)
    )
    session.flush()


def cancel_hopeless(database: Database) -> int:
    """Cancels whoever waits for a job that failed or was cancelled, along whole chains; returns how many."""
    n_cancelled = 0
    while True:
        with database.reading() as session:
            hopeless = _hopeless(session)
        with database.session() as session:
            cancelled = sum(_cancel(session, *found) for found in hopeless)
        n_cancelled += cancelled
        if not cancelled:
            return n_cancelled


def _hopeless(session: Session) -> list[tuple[str, str, str]]:
    """(job, the one it waits for, the state of that)."""
    needed = aliased(Job)
    query = (
        select(Job.id, needed.id, needed.state)
        .join(JobDependency, JobDependency.job_id == Job.id)
        .join(needed, needed.id == JobDependency.needs_id)
        .where(Job.state.in_(NOT_STARTED), needed.state.in_(HOPELESS))
        .order_by(Job.id, JobDependency.position)
    )
    return [(row[0], row[1], row[2]) for row in session.execute(query)]


def _cancel(session: Session, job_id: str, needs_id: str, state: str) -> bool:
    words = f"Cancelled: it waits for {needs_id}, which is {state} and will never succeed"
    event = NewEvent("cancelled", words, level="warning", data={"needs": needs_id, "state": state})
    return move(session, job_id, State.CANCELLED, event, only_from=NOT_STARTED)
