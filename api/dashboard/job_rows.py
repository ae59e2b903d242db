"""The rows of the job list: filtered, sorted by a column, one page of them, each with a small curve of its loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, select, tuple_
from sqlalchemy.orm import Session, defer

from api.core.jobs import Filters
from api.core.tables import Job, JobLabel, MetricRow

SORTS: dict[str, ColumnElement[Any]] = {
    "name": func.lower(Job.name),
    "state": Job.state.expression,
    "progress": case((Job.planned_steps > 0, Job.step * 1.0 / Job.planned_steps), else_=0.0),
    "loss": Job.latest["loss"].as_float(),
    "best": Job.best_value.expression,
    "left": Job.eta_s.expression,
    "created": Job.id.expression,
}
CURVE_POINTS = 32
WIDTH, HEIGHT = 96, 24


def count(session: Session, filters: Filters) -> int:
    return session.scalar(_narrowed(select(func.count()).select_from(Job), filters)) or 0


def find(
    session: Session, filters: Filters, sort: str, *, is_descending: bool, skip: int, limit: int
) -> list[tuple[Job, str | None]]:
    """The jobs of a page, each with its metric for best. Empty cells come last in either direction."""
    column = SORTS[sort]
    order = column.desc().nulls_last() if is_descending else column.asc().nulls_last()
    # Only ids are sorted: a job's row is kilobytes.
    ids = list(
        session.scalars(_narrowed(select(Job.id), filters).order_by(order, Job.id.desc()).offset(skip).limit(limit))
    )
    metric = Job.resolved["metric_for_best"].as_string()
    query = select(Job, metric).options(defer(Job.resolved, raiseload=True), defer(Job.preflight, raiseload=True))
    rows = {row[0].id: (row[0], row[1]) for row in session.execute(query.where(Job.id.in_(ids)))}
    return [rows[job_id] for job_id in ids if job_id in rows]


def _narrowed(query: Select[Any], filters: Filters) -> Select[Any]:
    if filters.states:
        query = query.where(Job.state.in_(sorted(filters.states)))
    if filters.name:
        query = query.where(Job.name.icontains(filters.name, autoescape=True))
    for key, value in filters.labels.items():
        labelled = select(JobLabel.job_id).where(JobLabel.key == key, JobLabel.value == value)
        query = query.where(Job.id.in_(labelled))
    return query


def sparklines(session: Session, jobs: Sequence[Job]) -> dict[str, str]:
    """Job id -> the points of an SVG polyline of its loss. One query: a few rows of each job, found by their key."""
    keys = [(job.id, n) for job in jobs for n in _spread(job.last_metric_n)]
    if not keys:
        return {}
    query = select(MetricRow.job_id, MetricRow.step, MetricRow.values["loss"].as_float())
    query = query.where(tuple_(MetricRow.job_id, MetricRow.n).in_(keys), MetricRow.is_superseded.is_(False))
    lines: dict[str, list[tuple[int, float]]] = {}
    for job_id, step, loss in session.execute(query.order_by(MetricRow.job_id, MetricRow.step)):
        if loss is not None and math.isfinite(loss):
            lines.setdefault(job_id, []).append((step, loss))
    return {job_id: polyline(points) for job_id, points in lines.items() if len(points) > 1}


def _spread(last_n: int) -> list[int]:
    """Up to `CURVE_POINTS` numbers from 1 to the last."""
    if last_n <= CURVE_POINTS:
        return list(range(1, last_n + 1))
    return [1 + index * (last_n - 1) // (CURVE_POINTS - 1) for index in range(CURVE_POINTS)]


def polyline(points: Sequence[tuple[int, float]]) -> str:
    first, last = points[0][0], points[-1][0]
    low, high = min(value for _, value in points), max(value for _, value in points)
    return " ".join(
        f"{WIDTH * (step - first) / max(last - first, 1):.1f},"
        f"{1 + (HEIGHT - 2) * (1 - (value - low) / ((high - low) or 1)):.1f}"
        for step, value in points
    )
