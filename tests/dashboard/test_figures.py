"""Curves as the charts get them: extremes survive, a cursor goes on where they end, everything comes as CSV."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from api.core.tables import MetricRow
from api.dashboard.curves import MAX_BUCKETS, Line
from tests.dashboard.filled import Filled, Json, filled


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with filled(tmp_path_factory.mktemp("figures")) as service:
        yield service


def figures(service: Filled, job_id: str, query: str = "") -> Json:
    answer = service.http.get(f"/jobs/{job_id}/figures{query}")
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


@pytest.mark.parametrize("n_points", [1, 63, 64, 5000, 100_000])
def test_a_line_keeps_its_extremes_its_gaps_and_its_ends(n_points: int) -> None:
    line = Line()
    for step in range(n_points):
        line.add((step, step, None if step == n_points // 2 else 1000.0 if step == n_points // 3 else step % 7 / 7))
    points = line.points()
    assert len(points) <= 3 * (MAX_BUCKETS + 130)
    steps = [step for step, _, _ in points]
    assert steps == sorted(set(steps))
    assert {n_points // 2} <= set(steps)
    if n_points > 3:
        assert (n_points // 3, n_points // 3, 1000.0) in points
    if n_points <= MAX_BUCKETS:
        assert len(points) == n_points


def test_short_runs_come_whole(service: Filled) -> None:
    job = service.add_job()
    service.add_curve(job, 50)
    found = figures(service, job)
    assert found["figures"]["loss"]["step"] == list(range(1, 51))
    assert found["figures"]["eval_loss"]["step"] == list(range(5, 51, 5))
    assert (found["n"], found["is_thinned"]) == (50, False)
    assert "memory_bytes_rank0" not in found["figures"]


def test_a_long_run_is_thinned_and_its_spikes_kept(service: Filled) -> None:
    job = service.add_job()
    service.add_curve(job, 60_000, spikes={43_456: 99.0, 50_001: "NaN", 77: -5.0})
    first_at = time.monotonic()
    found = figures(service, job)
    first_s = time.monotonic() - first_at
    loss = found["figures"]["loss"]
    points = dict(zip(loss["step"], loss["value"], strict=True))
    assert (points[43_456], points[50_001], points[77]) == (99.0, None, -5.0)
    assert len(loss["step"]) < 4000
    assert found["is_thinned"]
    again_at = time.monotonic()
    assert figures(service, job) == found
    again_s = time.monotonic() - again_at
    assert again_s < first_s
    service.add_curve(job, 10, scale=3)
    later = figures(service, job)
    assert later["n"] == 60_010
    near = figures(service, job, "?first=43450&last=43460")
    assert near["figures"]["loss"]["step"] == list(range(43_450, 43_461))


def test_steps_done_again_replace_the_old_ones(service: Filled) -> None:
    job = service.add_job()
    service.add_curve(job, 40)
    assert len(figures(service, job)["figures"]["loss"]["step"]) == 40
    with service.database.session() as session:
        session.execute(
            update(MetricRow).where(MetricRow.job_id == job, MetricRow.step > 20).values(is_superseded=True)
        )
        session.add(
            MetricRow(
                job_id=job,
                n=41,
                at=session.get_one(MetricRow, (job, 1)).at,
                attempt=2,
                seq=1,
                kind="train",
                step=21,
                values={"loss": 7.0},
            )
        )
    loss = figures(service, job)["figures"]["loss"]
    assert loss["step"] == list(range(1, 22))
    assert loss["value"][-1] == 7.0


def test_the_table_has_every_row(service: Filled) -> None:
    job = service.add_job()
    service.add_curve(job, 3000, spikes={5: "Infinity"})
    lines = service.http.get(f"/jobs/{job}/figures.csv?names=loss,eval_loss").text.splitlines()
    assert lines[0] == "step,epoch,at,attempt,loss,eval_loss"
    assert len(lines) == 3001
    assert lines[5].split(",")[4] == "Infinity"


def test_a_foreign_browser_is_sent_to_log_in(service: Filled, tmp_path: Path) -> None:
    answer = service.http.get("/jobs/job_x/figures", headers={"Authorization": ""}, follow_redirects=False)
    assert answer.status_code in (303, 401)
