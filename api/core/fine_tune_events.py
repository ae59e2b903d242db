"""A job's events and its rows of metrics as one list, newest first.

Both count by themselves (`n`, gap-free); they are merged by their instants, and a page goes on where an item of either
kind stood.
"""

from __future__ import annotations

from typing import TypeVar

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from api.core.tables import Event, Job, MetricRow

Item = Event | MetricRow
Row = TypeVar("Row", Event, MetricRow)


def page(session: Session, job: Job, after: Item | None, limit: int) -> tuple[list[Item], bool]:
    """At most `limit` items older than `after`, newest first, and whether more follow."""
    events = _older(session, job.id, Event, after, limit + 1)
    rows = _older(session, job.id, MetricRow, after, limit + 1)
    merged: list[Item] = []
    while len(merged) <= limit and (events or rows):
        # At the same instant the figures come after the words: newest first, they stand before them.
        merged.append(rows.pop() if rows and (not events or rows[-1].at >= events[-1].at) else events.pop())
    return merged[:limit], len(merged) > limit


def find(session: Session, job_id: str, kind: str, n: int) -> Item | None:
    """The item of an id: an event (e) or a row of metrics (m)."""
    if kind == "e":
        return session.get(Event, (job_id, n))
    return session.get(MetricRow, (job_id, n))


def _older(session: Session, job_id: str, table: type[Row], after: Item | None, limit: int) -> list[Row]:
    """The newest `limit` items of one kind that are older than `after`, oldest first."""
    query = select(table).where(table.job_id == job_id).order_by(table.n.desc()).limit(limit)
    if isinstance(after, table):
        query = query.where(table.n < after.n)
    elif after is not None:
        query = query.where(table.n <= _met(session, job_id, table, after))
    if issubclass(table, MetricRow):
        query = query.where(MetricRow.is_superseded.is_(False))
    return list(session.scalars(query))[::-1]


def _met(session: Session, job_id: str, table: type[Item], after: Item) -> int:
    """How far the items of `table` had been gone through when `after` was reached: `n` of the newest one left.

    Events have two clocks, the service's and the trainer's, and an earlier instant may have a later `n`: the merge then
    waited for it, as it is waited for here. Figures have one clock.
    """
    if table is Event:
        left = select(func.max(Event.n)).where(Event.job_id == job_id, Event.at <= after.at)
    else:
        earliest = select(func.min(Event.at)).where(Event.job_id == job_id, Event.n >= after.n).scalar_subquery()
        left = select(func.max(MetricRow.n)).where(MetricRow.job_id == job_id, MetricRow.at < earliest)
    return session.scalar(left) or 0
