"""Metric rows of a job: read by cursor, or as thinned series for a chart.

One row holds all figures of one record. Rows of steps that a later attempt did again are kept and marked superseded.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.core.tables import MetricRow

NON_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})


@dataclass(frozen=True, slots=True)
class Point:
    """One figure at one step; `value` is null where it was not finite, and `nonfinite` then says what it was."""

    step: int
    value: float | None
    nonfinite: str | None = None


def read(
    session: Session,
    job_id: str,
    after: int,
    limit: int,
    kind: str | None = None,
    names: Sequence[str] | None = None,
    include_superseded: bool = False,
) -> list[MetricRow]:
    """At most `limit` rows with n > `after`, oldest first.

    `names` keeps the rows that have one of these figures; the rows come whole.
    """
    query = select(MetricRow).where(MetricRow.job_id == job_id, MetricRow.n > after).order_by(MetricRow.n)
    if kind is not None:
        query = query.where(MetricRow.kind == kind)
    if not include_superseded:
        query = query.where(MetricRow.is_superseded.is_(False))
    if names is None:
        return list(session.scalars(query.limit(limit)))
    wanted = frozenset(names)
    found: list[MetricRow] = []
    # Closed even when left early: on PostgreSQL these rows come through a cursor that the server keeps.
    with closing(session.scalars(query.execution_options(yield_per=1000))) as rows:
        for row in rows:
            if not wanted.isdisjoint(row.values):
                found.append(row)
                if len(found) == limit:
                    break
    return found


def series(session: Session, job_id: str, names: Sequence[str], max_points: int) -> dict[str, list[Point]]:
    """Each figure over its steps, thinned to about `max_points`; extremes and non-finite values are kept."""
    query = (
        select(MetricRow.step, MetricRow.values)
        .where(MetricRow.job_id == job_id, MetricRow.is_superseded.is_(False))
        .order_by(MetricRow.n)
    )
    points: dict[str, list[Point]] = {name: [] for name in names}
    for step, values in session.execute(query.execution_options(yield_per=1000)):
        for name in names:
            if name in values:
                points[name].append(_point(step, values[name]))
    return {name: thin(line, max_points) for name, line in points.items()}


def _point(step: int, value: float | str) -> Point:
    if isinstance(value, str):
        return Point(step, None, value)
    return Point(step, float(value))


def thin(points: list[Point], max_points: int) -> list[Point]:
    """At most about `max_points` of `points` (4 at least), in order: first and last, and each bucket's extremes.

    A bucket gives its smallest and its largest value and its first non-finite one, so that a spike or a gap
    is never thinned away.
    """
    if len(points) <= max_points:
        return points
    n_buckets = max(1, (max_points - 2) // 2)
    inner = points[1:-1]
    kept = [points[0]]
    for bucket in range(n_buckets):
        part = inner[bucket * len(inner) // n_buckets : (bucket + 1) * len(inner) // n_buckets]
        kept.extend(part[index] for index in _extremes(part))
    return [*kept, points[-1]]


def _extremes(points: list[Point]) -> list[int]:
    values = {index: point.value for index, point in enumerate(points) if point.value is not None}
    chosen = (
        {next(index for index in range(len(points)) if index not in values)} if len(values) < len(points) else set()
    )
    if values:
        chosen |= {min(values, key=values.__getitem__), max(values, key=values.__getitem__)}
    return sorted(chosen)
