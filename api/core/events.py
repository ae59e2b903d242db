"""Events of a job: what happened, in order, for people and programs.

The cursor `n` counts within the job without gaps and in commit order, because it is taken from the job's own row by an
UPDATE in the transaction that writes the events: the row lock is held until they are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from api.core.clean import clean_json, clean_text
from api.core.db import now
from api.core.errors import NotFound
from api.core.tables import Event, Job


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to be written. `at` null: now. `seq` is the number of the trainer's record it was made from."""

    kind: str
    message: str
    level: str = "info"
    data: dict[str, Any] = field(default_factory=dict)
    at: datetime | None = None
    seq: int | None = None


def append(session: Session, job_id: str, events: Sequence[NewEvent]) -> None:
    """Writes `events` in their order. Raises NotFound where there is no such job."""
    if not events:
        return
    taken = session.execute(
        update(Job)
        .where(Job.id == job_id)
        .values(last_event_n=Job.last_event_n + len(events))
        .returning(Job.last_event_n, Job.attempt)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    if taken is None:
        raise NotFound(f"there is no job {job_id!r}")
    write(session, job_id, events, last_n=taken.last_event_n, attempt=taken.attempt)


def write(session: Session, job_id: str, events: Sequence[NewEvent], *, last_n: int, attempt: int) -> None:
    """Inserts `events` under numbers that the caller has taken already; the last one gets `last_n`."""
    first_n = last_n - len(events) + 1
    rows = [
        {
            "job_id": job_id,
            "n": first_n + offset,
            "at": event.at or now(),
            "attempt": attempt or None,
            "seq": event.seq,
            "level": event.level,
            "kind": event.kind,
            "message": clean_text(event.message),
            "data": clean_json(event.data),
        }
        for offset, event in enumerate(events)
    ]
    session.execute(insert(Event.__table__), rows)  # type: ignore[arg-type]  # the declared type is FromClause


def read(session: Session, job_id: str, after: int, limit: int) -> list[Event]:
    """At most `limit` events with n > `after`, oldest first."""
    query = select(Event).where(Event.job_id == job_id, Event.n > after).order_by(Event.n).limit(limit)
    return list(session.scalars(query))
