"""The charts of a run and of several: zoom, smoothing, log scale, time, files; live rows after the thinned ones."""

from __future__ import annotations

import time
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from api.core.states import State
from tests.dashboard.conftest import WAIT_MS
from tests.dashboard.filled import Filled
from tests.live import until

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("dashboard")]
expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def run(shelf: Filled) -> str:
    job = shelf.add_job("with curves", planned_steps=400, step=400)
    shelf.add_curve(job, 400, {50: 9.0, 100: "NaN"})
    return job


def data(page: Page, chart: str = "loss-chart") -> list[list[Any]]:
    found: list[list[Any]] = page.evaluate(f"document.getElementById('{chart}')?.plot?.data ?? [[]]")
    return found


def shown_range(page: Page, chart: str) -> tuple[float, float]:
    low, high = page.evaluate(f"(({{min, max}}) => [min, max])(document.getElementById('{chart}').plot.scales.x)")
    return low, high


def drag(page: Page, over: Locator) -> None:
    box = over.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, middle, steps=4)
    page.mouse.up()


def test_every_figure_has_its_chart(visitor: Page, run: str) -> None:
    visitor.goto(f"/jobs/{run}")
    for chart in ("loss-chart", "rate-chart", "norm-chart", "speed-chart", "memory-chart"):
        expect(visitor.locator(f"#{chart} canvas")).to_have_count(1)
    steps, loss, evaluated = data(visitor)
    assert steps == list(range(1, 401))
    assert (loss[49], loss[99]) == (9.0, None)
    assert [step for step, value in zip(steps, evaluated, strict=True) if value is not None] == list(range(40, 401, 40))


def test_a_drag_zooms_every_chart_and_the_button_goes_back(visitor: Page, run: str) -> None:
    visitor.goto(f"/jobs/{run}")
    over = visitor.locator("#loss-chart .u-over")
    over.scroll_into_view_if_needed()
    drag(visitor, over)
    expect(visitor.get_by_role("button", name="Whole run")).to_be_enabled()
    for chart in ("loss-chart", "speed-chart"):
        low, high = shown_range(visitor, chart)
        assert 90 < low < 115, chart
        assert 190 < high < 215, chart
    visitor.get_by_role("button", name="Whole run").click()
    assert shown_range(visitor, "speed-chart") == (1, 400)
    visitor.locator("#loss-chart").focus()
    visitor.keyboard.press("ArrowRight")
    visitor.keyboard.press("+")
    low, high = shown_range(visitor, "rate-chart")
    assert high - low < 250
    visitor.keyboard.press("Escape")
    assert shown_range(visitor, "loss-chart") == (1, 400)


def test_the_crosshair_is_shared(visitor: Page, run: str) -> None:
    visitor.goto(f"/jobs/{run}")
    over = visitor.locator("#loss-chart .u-over")
    over.scroll_into_view_if_needed()
    over.hover()
    until(
        lambda: visitor.evaluate("document.getElementById('speed-chart').plot.cursor.idx"), "the crosshair", within_s=5
    )


def test_smoothing_log_scale_and_time_are_in_the_address(visitor: Page, run: str) -> None:
    visitor.goto(f"/jobs/{run}?smooth=0.9&log=1&x=time")
    expect(visitor.get_by_label("Smoothing")).to_have_value("0.9")
    expect(visitor.get_by_label("Log scale")).to_be_checked()
    until(lambda: len(data(visitor)) == 4, "the smoothed line")
    instants, loss, _evaluated, smoothed = data(visitor)
    assert instants[1] - instants[0] == 1
    assert max(value for value in smoothed if value is not None) < loss[49] == 9.0
    visitor.get_by_label("Smoothing").fill("0")
    visitor.get_by_label("Log scale").uncheck()
    visitor.get_by_label("Across").select_option("steps")
    assert visitor.url.endswith(f"/jobs/{run}")
    assert data(visitor)[0][0] == 1


def test_a_chart_is_kept_as_picture_and_table(visitor: Page, run: str) -> None:
    visitor.goto(f"/jobs/{run}")
    with visitor.expect_download() as picture:
        visitor.get_by_role("button", name="Save Loss as PNG").click()
    assert picture.value.path().read_bytes().startswith(b"\x89PNG")
    with visitor.expect_download() as table:
        visitor.get_by_role("link", name="Save Loss as CSV").click()
    lines = table.value.path().read_text().splitlines()
    assert lines[0].endswith("loss,eval_loss")
    assert len(lines) == 401


def test_live_rows_go_on_where_the_thinned_curve_ends(visitor: Page, shelf: Filled) -> None:
    job = shelf.add_job("long", state=State.RUNNING, planned_steps=40_000, step=20_000)
    shelf.add_curve(job, 20_000, {7777: 55.0})
    visitor.goto(f"/jobs/{job}")
    until(lambda: data(visitor)[0], "the curve")
    steps, loss, *_ = data(visitor)
    assert len(steps) < 4000
    assert loss[steps.index(7777)] == 55.0
    shelf.add_curve(job, 7)
    until(lambda: data(visitor)[0][-1] == 20_007, "the live rows")
    assert data(visitor)[0][-7:] == list(range(20_001, 20_008))
    over = visitor.locator("#loss-chart .u-over")
    over.scroll_into_view_if_needed()
    coarse = sum(6000 <= step <= 9000 for step in data(visitor)[0])
    drag(visitor, over)
    until(lambda: sum(6000 <= step <= 9000 for step in data(visitor)[0]) > 2 * coarse, "the detail", within_s=20)
    assert 7777 in data(visitor)[0]


def test_twenty_runs_lie_over_each_other(visitor: Page, shelf: Filled) -> None:
    jobs = [shelf.add_job(f"run {index}", best_value=index / 10, best_step=5) for index in range(21)]
    for index, job in enumerate(jobs):
        shelf.add_curve(job, 30 + index, scale=1 + index / 10)
    began = time.monotonic()
    visitor.goto(f"/compare?jobs={','.join(jobs)}")
    expect(visitor.locator("#loss-chart canvas")).to_have_count(1)
    assert time.monotonic() - began < 20  # far from the second it takes, for a machine that is busy
    assert len(data(visitor)) == 21
    expect(visitor.get_by_role("alert")).to_contain_text(jobs[20])
    expect(visitor.get_by_role("region", name="Best of each").get_by_role("row")).to_have_count(21)


def test_only_what_differs_is_compared(visitor: Page, shelf: Filled) -> None:
    same = {"metric_for_best": "eval_loss", "model": {"name": "tiny"}}
    first = shelf.add_job("one", resolved=same | {"training": {"learning_rate": 0.1, "seed": 1}})
    second = shelf.add_job("two", resolved=same | {"training": {"learning_rate": 0.2, "seed": 1}})
    visitor.goto(f"/compare?jobs={first},{second}")
    table = visitor.get_by_role("region", name="Options that differ")
    expect(table).to_contain_text("training.learning_rate")
    expect(table).not_to_contain_text("seed")
    expect(table).not_to_contain_text("model.name")
    visitor.goto(f"/jobs/{first}?against={second}")
    configuration = visitor.get_by_role("region", name="Resolved configuration")
    expect(configuration).to_contain_text("0.2")
    expect(configuration).not_to_contain_text("seed")
