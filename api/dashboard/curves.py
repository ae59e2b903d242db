"""Curves of a run for its charts, thinned while its rows are read and kept up to date: old rows are read once.

A point is (step, milliseconds since 1970, value); the value is None where it was not finite.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from threading import Lock
from typing import Any

from sqlalchemy import Text, cast, select
from sqlalchemy.orm import Session

from api.core.tables import MetricRow

Point = tuple[int, int, float | None]

MAX_BUCKETS = 1024
MAX_NAMES = 32
MAX_JOBS = 64
PAGE = 5000
NOT_DRAWN = re.compile(r"_rank\d+$|^tokens_seen$|^eval_(runtime|samples_per_second|steps_per_second)$")
_value = itemgetter(2)


@dataclass(slots=True)
class Line:
    """One figure. Buckets of `width` points keep their smallest, largest and first missing value; when there are too
    many, neighbours are merged, so that a spike or a gap is never lost."""

    width: int = 1
    buckets: list[list[Point]] = field(default_factory=list)
    fresh: list[Point] = field(default_factory=list)

    def add(self, point: Point) -> None:
        self.fresh.append(point)
        if len(self.fresh) >= self.width * 64:
            self._settle()

    def points(self) -> list[Point]:
        settled = [point for bucket in self.buckets for point in bucket]
        return settled + [point for part in self._parts() for point in reduced(part)]

    def _parts(self) -> list[list[Point]]:
        return [self.fresh[start : start + self.width] for start in range(0, len(self.fresh), self.width)]

    def _settle(self) -> None:
        self.buckets.extend(reduced(part) for part in self._parts())
        self.fresh = []
        if len(self.buckets) > MAX_BUCKETS:
            pairs = range(0, len(self.buckets), 2)
            merged = [[point for bucket in self.buckets[at : at + 2] for point in bucket] for at in pairs]
            self.buckets = [reduced(bucket) for bucket in merged]
            self.width *= 2


def reduced(bucket: list[Point]) -> list[Point]:
    """The bucket's extremes and its first missing value, in their order."""
    if len(bucket) < 3:
        return bucket
    finite = [point for point in bucket if point[2] is not None]
    kept = {min(finite, key=_value), max(finite, key=_value)} if finite else set()
    if len(finite) < len(bucket):
        kept.add(next(point for point in bucket if point[2] is None))
    return sorted(kept, key=itemgetter(0, 1))


@dataclass(slots=True)
class Curves:
    """All figures of one job up to its cursor `n`."""

    n: int = 0
    attempt: int = 0
    lines: dict[str, Line] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    lock: Lock = field(default_factory=Lock)

    def read(self, session: Session, job_id: str) -> None:
        """Takes over the rows after the cursor; begins anew when a later attempt has done steps again."""
        while page := _page(session, job_id, self.n):
            newest = max(row.attempt for row in page)
            if self.attempt and newest > self.attempt:
                self.n, self.attempt, self.lines = 0, newest, {}
                continue
            self.attempt = max(self.attempt, newest)
            figures = json.loads(f"[{','.join(row.values for row in page)}]")  # one call is half the time of one a row
            for row, values in zip(page, figures, strict=True):
                self._take(row.step, round(row.at.timestamp() * 1000), values)
            self.n = page[-1].n

    def _take(self, step: int, at: int, values: dict[str, float | str]) -> None:
        for name, value in values.items():
            line = self.lines.get(name)
            if line is None:
                if name in self.left_out:
                    continue
                if len(self.lines) >= MAX_NAMES or NOT_DRAWN.search(name):
                    self.left_out.add(name)
                    continue
                line = self.lines[name] = Line()
            line.add((step, at, None if isinstance(value, str) else value))

    def shown(self) -> dict[str, Any]:
        """As the page takes it: columns are a third of the bytes of objects."""
        figures = {name: _columns(line.points()) for name, line in self.lines.items()}
        return {"n": self.n, "figures": figures, "is_thinned": any(line.width > 1 for line in self.lines.values())}


def _columns(points: Sequence[Point]) -> dict[str, list[Any]]:
    steps, instants, values = zip(*points, strict=True) if points else ((), (), ())
    return {"step": list(steps), "at": list(instants), "value": list(values)}


def _page(session: Session, job_id: str, after: int) -> Sequence[Any]:
    # The figures come as text: the column's own type would make two objects of each row.
    columns = (
        MetricRow.n,
        MetricRow.at,
        MetricRow.attempt,
        MetricRow.step,
        cast(MetricRow.values, Text).label("values"),
    )
    query = select(*columns).where(MetricRow.job_id == job_id, MetricRow.n > after, MetricRow.is_superseded.is_(False))
    return session.execute(query.order_by(MetricRow.n).limit(PAGE)).all()


class CurveShelf:
    """The curves of the jobs looked at last; one reader at a time brings a job's curves up to date."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Curves] = OrderedDict()
        self._lock = Lock()

    def look(self, session: Session, job_id: str) -> dict[str, Any]:
        with self._lock:
            curves = self._jobs.setdefault(job_id, Curves())
            self._jobs.move_to_end(job_id)
            while len(self._jobs) > MAX_JOBS:
                self._jobs.popitem(last=False)
        with curves.lock:
            curves.read(session, job_id)
            return curves.shown()


def zoomed(session: Session, job_id: str, first: int, last: int) -> dict[str, Any]:
    """The curves between two steps, in the detail that so narrow a part allows."""
    part = Curves()
    columns = (MetricRow.step, MetricRow.at, cast(MetricRow.values, Text).label("values"))
    query = select(*columns).where(MetricRow.job_id == job_id, MetricRow.is_superseded.is_(False))
    query = query.where(MetricRow.step.between(first, last)).order_by(MetricRow.step, MetricRow.n)
    for row in session.execute(query.execution_options(yield_per=PAGE)):
        part._take(row.step, round(row.at.timestamp() * 1000), json.loads(row.values))
    return part.shown()
