"""Datasets and the result files of jobs as one list of files, by the instant they came to be."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from api.core.errors import Invalid
from api.core.ids import is_id
from api.core.result_files import has_results
from api.core.tables import Dataset, Job

Order = Literal["asc", "desc"]
Purpose = Literal["fine-tune", "fine-tune-results"]
PURPOSES: tuple[Purpose, ...] = ("fine-tune", "fine-tune-results")


def page(
    session: Session, purposes: Sequence[Purpose], after: Dataset | Job | None, limit: int, order: Order
) -> tuple[list[Dataset | Job], bool]:
    """A page of files, each by the row it is made from, and whether more follow."""
    found: list[Dataset | Job] = []
    if "fine-tune" in purposes:
        query = select(Dataset).where(Dataset.deleted_at.is_(None))
        found += session.scalars(_from(query, Dataset.created_at, Dataset.id, after, order).limit(limit + 1))
    if "fine-tune-results" in purposes:
        jobs = select(Job).where(*has_results(), Job.finished_at.is_not(None))
        found += session.scalars(_from(jobs, Job.finished_at, Job.id, after, order).limit(limit + 1))
    found.sort(key=_place, reverse=order == "desc")
    return found[:limit], len(found) > limit


def find(session: Session, row_id: str) -> Dataset | Job:
    """The row of a cursor; a dataset that was deleted meanwhile still has its place. Raises Invalid."""
    row: Dataset | Job | None = None
    if is_id(row_id):
        row = session.get(Job, row_id) if row_id.startswith("job_") else session.get(Dataset, row_id)
    if row is None or _place(row)[0] is None:
        raise Invalid("this is the id of no file; pass the last one of the page before", param="after")
    return row


def _place(row: Dataset | Job) -> tuple[datetime | None, str]:
    return (row.created_at if isinstance(row, Dataset) else row.finished_at), row.id


def _from(
    query: Any,
    at: InstrumentedAttribute[datetime] | InstrumentedAttribute[datetime | None],
    row_id: InstrumentedAttribute[str],
    after: Dataset | Job | None,
    order: Order,
) -> Any:
    is_down = order == "desc"
    query = query.order_by(at.desc(), row_id.desc()) if is_down else query.order_by(at, row_id)
    if after is None:
        return query
    seen_at, seen_id = _place(after)
    beyond = (at < seen_at, row_id < seen_id) if is_down else (at > seen_at, row_id > seen_id)
    return query.where(or_(beyond[0], and_(at == seen_at, beyond[1])))
