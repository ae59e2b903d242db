"""Metric rows by cursor and as thinned series that keep every extreme."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.core import attempts, metrics
from api.core.db import Database
from api.core.metrics import Point, thin
from tests.api.core.rows import T0, make_run, metrics_record
from trainer_core.contract import AnyRecord, Evaluated

values = st.one_of(st.floats(-1e6, 1e6), st.none())


@given(st.lists(values, max_size=300), st.integers(4, 60))
def test_thinning_keeps_ends_extremes_order_and_its_promise(line: list[float | None], max_points: int) -> None:
    points = [Point(step, value, None if value is not None else "NaN") for step, value in enumerate(line)]
    kept = thin(points, max_points)
    assert [point.step for point in kept] == sorted({point.step for point in kept})
    assert set(kept) <= set(points)
    assert len(kept) <= max(max_points * 3 // 2 + 1, 5)
    finite = [value for value in line if value is not None]
    if finite:
        assert {min(finite), max(finite)} <= {point.value for point in kept}
    if points:
        assert (kept[0], kept[-1]) == (points[0], points[-1])
    if None in line:
        assert any(point.value is None for point in kept)


def test_rows_are_chosen_by_kind_name_and_cursor(database: Database) -> None:
    run = make_run(database, started=True)
    records: list[AnyRecord] = [
        metrics_record(2, 1, loss=3.0, lr=0.1),
        metrics_record(3, 2, loss=2.0),
        Evaluated(seq=4, at=T0, step=2, values={"eval_loss": "NaN"}),
        metrics_record(5, 3, loss=1.0, lr=0.2),
    ]
    with database.session() as session:
        attempts.take_records(session, run.attempt_id, records)
    with database.reading() as session:
        assert [row.n for row in metrics.read(session, run.job_id, 1, 2)] == [2, 3]
        assert [row.n for row in metrics.read(session, run.job_id, 0, 10, kind="eval")] == [3]
        assert [row.n for row in metrics.read(session, run.job_id, 0, 10, names=["lr", "eval_loss"])] == [1, 3, 4]
        assert [row.n for row in metrics.read(session, run.job_id, 1, 1, names=["lr"])] == [4]
        lines = metrics.series(session, run.job_id, ["loss", "eval_loss", "none"], 100)
    assert lines == {
        "loss": [Point(1, 3.0), Point(2, 2.0), Point(3, 1.0)],
        "eval_loss": [Point(2, None, "NaN")],
        "none": [],
    }


def test_a_long_series_is_thinned(database: Database) -> None:
    run = make_run(database, started=True)
    records = [metrics_record(seq, seq, loss=1000.0 if seq == 777 else 1.0) for seq in range(2, 2002)]
    with database.session() as session:
        attempts.take_records(session, run.attempt_id, records)
    with database.reading() as session:
        line = metrics.series(session, run.job_id, ["loss"], 100)["loss"]
    assert len(line) <= 100
    assert max(point.value or 0 for point in line) == pytest.approx(1000.0)
