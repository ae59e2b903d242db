"""A job's figures as one CSV file, as OpenAI's clients know it, made once when it is first asked for.

Only for jobs that are over: their figures change no more, so that the stored file stays true.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from api.core.errors import NotFound
from api.core.ids import is_id
from api.core.states import TERMINAL
from api.core.storage import Storage
from api.core.tables import Job, MetricRow

HEADER = ("step", "train_loss", "train_accuracy", "valid_loss", "valid_mean_token_accuracy")
# Column -> the figures that may stand in it, the first that a row has.
FIGURES: Mapping[str, tuple[str, ...]] = {
    "train_loss": ("loss",),
    "train_accuracy": ("mean_token_accuracy", "accuracy"),
    "valid_loss": ("eval_loss",),
    "valid_mean_token_accuracy": ("eval_mean_token_accuracy", "eval_accuracy"),
}


def has_results() -> list[ColumnElement[bool]]:
    """Conditions on a job that has such a file."""
    return [Job.state.in_(sorted(TERMINAL)), Job.last_metric_n > 0]


def is_there(job: Job) -> bool:
    return job.state in TERMINAL and job.last_metric_n > 0


def find_job(session: Session, job_id: str) -> Job:
    """The job whose results these are. Raises NotFound for none, and for one that is not over."""
    job = session.get(Job, job_id) if is_id(job_id) else None
    if job is None or not is_there(job):
        raise NotFound("no such file", param="id")
    return job


def ensure(session: Session, storage: Storage, job: Job) -> tuple[str, int]:
    """(storage key, size in bytes) of the file, which is made when it is not there. Made twice at once, it is equal."""
    key = f"results/{job.id}.csv"
    if not storage.exists(key):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "results.csv"
            _write(session, job.id, file)
            storage.put(key, file)
    return key, storage.size(key)


def _write(session: Session, job_id: str, file: Path) -> None:
    query = (
        select(MetricRow.step, MetricRow.values)
        .where(MetricRow.job_id == job_id, MetricRow.is_superseded.is_(False))
        .order_by(MetricRow.step, MetricRow.n)
    )
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, HEADER, lineterminator="\n")
        writer.writeheader()
        line: dict[str, Any] = {}
        for step, values in session.execute(query.execution_options(yield_per=1000)):
            if line and line["step"] != step:
                writer.writerow(line)
                line = {}
            line |= {"step": step} | figures(values)
        if line:
            writer.writerow(line)


def figures(values: Mapping[str, float | str]) -> dict[str, float | str]:
    """The columns that a row of metrics fills. What is not finite stays the word it is kept as."""
    return {
        column: next(values[name] for name in names if name in values)
        for column, names in FIGURES.items()
        if any(name in values for name in names)
    }
