"""Datasets: an uploaded file is checked row by row, kept in its normal form, listed, previewed, deleted.

A file that is refused leaves nothing behind, neither in storage nor in the database.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from api.core import previews
from api.core.db import now
from api.core.errors import Conflict, Invalid, NotFound, TooLarge, TrainyardError, Unavailable
from api.core.ids import is_id, new_id
from api.core.names import dataset_prefix, shown_name
from api.core.settings import Settings
from api.core.states import TERMINAL
from api.core.storage import Storage
from api.core.tables import Dataset, Job
from trainer_core.data.rows import DatasetReport, Limits, UploadRefused, normalise

ROWS = "rows.jsonl"
INDEX = "rows.index"
MAX_JOBS_NAMED = 5


@dataclass(frozen=True)
class Stored:
    """A checked dataset that is in storage and not yet in the database."""

    id: str
    name: str
    report: DatasetReport


def store(storage: Storage, settings: Settings, source: Path, name: str) -> Stored:
    """Check the file `source` and store its rows; scratch files go beside it. Raises Invalid with every line at fault.

    Takes as long as reading the file does, and must not be called inside a transaction.
    """
    name = shown_name(name)
    rows, index = source.with_name(ROWS), source.with_name(INDEX)
    report = _checked(source, rows, Limits(max_bytes=settings.max_dataset_bytes))
    dataset_id = new_id("ds")
    prefix = dataset_prefix(dataset_id)
    try:
        previews.write_index(rows, index)
        storage.put(f"{prefix}/{ROWS}", rows)
        storage.put(f"{prefix}/{INDEX}", index)
    except (OSError, TrainyardError) as error:
        storage.delete_prefix(prefix)
        raise _full_disk(error) from error
    return Stored(dataset_id, name, report)


def _checked(source: Path, rows: Path, limits: Limits) -> DatasetReport:
    try:
        return normalise(source, rows, limits)
    except UploadRefused as refused:
        kind = TooLarge if refused.code == "too_large" else Invalid
        message = f"{refused.message}. {refused.hint}" if refused.hint else refused.message
        details = [problem.model_dump() for problem in refused.problems]
        raise kind(message, code=refused.code, param="file", details=details) from refused
    except OSError as error:
        raise _full_disk(error) from error


def _full_disk(error: Exception) -> Exception:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unavailable("the disk is full: the dataset was not kept; free some space", code="disk_full")
    return error


def discard(storage: Storage, stored: Stored) -> None:
    """Take back what `store` stored, when its row could not be written."""
    storage.delete_prefix(dataset_prefix(stored.id))


def add(session: Session, stored: Stored, actor_id: str) -> Dataset:
    """List a stored dataset."""
    report = stored.report
    dataset = Dataset(
        id=stored.id,
        name=stored.name,
        format=None if report.format == "columns" else report.format,
        n_rows=report.n_rows,
        size_bytes=report.size_bytes,
        sha256=report.sha256,
        storage_key=f"{dataset_prefix(stored.id)}/{ROWS}",
        report=report.model_dump(mode="json"),
        created_by=actor_id,
    )
    session.add(dataset)
    session.flush()
    return dataset


def get(session: Session, dataset_id: str, *, for_use: bool = False) -> Dataset:
    """The dataset, or NotFound. With `for_use` it cannot be deleted before this transaction ends."""
    if not is_id(dataset_id):
        raise NotFound("no such dataset")
    query = select(Dataset).where(Dataset.id == dataset_id, Dataset.deleted_at.is_(None))
    dataset = session.scalar(query.with_for_update(read=True) if for_use else query)
    if dataset is None:
        raise NotFound("no such dataset")
    return dataset


def find(session: Session, after: str | None, limit: int) -> tuple[list[Dataset], str | None]:
    """A page of datasets, newest first, and the cursor of the next page or None at the end."""
    query = select(Dataset).where(Dataset.deleted_at.is_(None)).order_by(Dataset.id.desc()).limit(limit + 1)
    if after is not None:
        if not is_id(after):
            raise Invalid("this is no cursor of a dataset list; pass `next` of the page before", param="after")
        query = query.where(Dataset.id < after)
    found = list(session.scalars(query))
    return found[:limit], found[limit - 1].id if len(found) > limit else None


def preview(
    storage: Storage, dataset: Dataset, after: int, limit: int, *, is_full: bool = False
) -> tuple[list[previews.PreviewRow], int | None]:
    """At most `limit` rows after row number `after`, and where the next page begins; long texts are cut."""
    index_key = f"{dataset_prefix(dataset.id)}/{INDEX}"
    with storage.pin(dataset.storage_key) as rows, storage.pin(index_key) as index:
        return previews.read_page(rows, index, after, limit, is_full=is_full)


def delete(session: Session, dataset_id: str) -> Dataset:
    """Take a dataset off the lists; its files go once this is committed. Raises Conflict while a job needs it."""
    query = select(Dataset).where(Dataset.id == dataset_id, Dataset.deleted_at.is_(None)).with_for_update()
    dataset = session.scalar(query) if is_id(dataset_id) else None
    if dataset is None:
        raise NotFound("no such dataset")
    used = [Job.resolved["data"][part]["id"].as_string() == dataset_id for part in ("train", "eval")]
    query_jobs = select(Job.id, Job.name).where(Job.state.not_in(TERMINAL), or_(*used)).limit(MAX_JOBS_NAMED)
    jobs = session.execute(query_jobs).all()
    if jobs:
        raise Conflict(
            f"the dataset is used by the job {jobs[0].id}, which has not ended; cancel the job or wait for its end",
            code="dataset_in_use",
            details=[{"job": job.id, "name": job.name} for job in jobs],
        )
    dataset.deleted_at = now()
    return dataset
