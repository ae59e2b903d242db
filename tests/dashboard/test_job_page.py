"""A running job, live: curve, log and checkpoints come by themselves, a reload loses nothing, text stays text."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import WAIT_MS, Watch
from tests.live import Service, body, until
from trainyard import Client

pytestmark = [pytest.mark.browser, pytest.mark.train, pytest.mark.xdist_group("dashboard")]
expect.set_options(timeout=WAIT_MS)
HOSTILE = "</script><b>x"


def steps(page: Page) -> list[int]:
    """The steps of the loss curve's points, as the chart itself holds them."""
    found: list[int] = page.evaluate("document.getElementById('loss-chart')?.plot?.data[0] ?? []")
    return found


def test_the_list_refreshes_itself(page: Page, running_job: str) -> None:
    row = page.get_by_role("row").filter(has_text=HOSTILE)
    expect(row).to_contain_text("running")
    before = row.inner_text()
    expect(row).not_to_have_text(before)


def test_figures_arrive_without_a_reload(page: Page, client: Client, running_job: str) -> None:
    page.goto(f"/jobs/{running_job}")
    expect(page.locator("#state")).to_have_text("running")
    first = until(lambda: steps(page), "points of the curve")
    until(lambda: len(steps(page)) > len(first), "more points of the curve")
    expect(page.locator("#log")).to_contain_text("'loss'")
    expect(page.get_by_role("link", name="archive").first).to_be_visible()
    progress = page.get_by_label("Training progress")
    at_first = float(progress.get_attribute("value") or 0)
    until(lambda: float(page.get_by_label("Training progress").get_attribute("value") or 0) > at_first, "progress")
    drawn = page.evaluate(
        """() => {
            const canvas = document.querySelector("#loss-chart canvas");
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            return pixels.some((value) => value !== 0);
        }"""
    )
    assert drawn


def test_a_reload_loses_no_point(page: Page, client: Client, running_job: str) -> None:
    page.goto(f"/jobs/{running_job}")
    before = until(lambda: steps(page), "points of the curve")
    page.reload()
    until(lambda: len(steps(page)) > len(before), "the points again, and more")
    shown = steps(page)
    kept = [row["step"] for row in client.metrics(running_job) if row["values"].keys() & {"loss", "eval_loss"}]
    assert shown == sorted(set(kept))[: len(shown)]


def test_hostile_text_stays_text(page: Page, live: Service, running_job: str) -> None:
    page.goto(f"/jobs/{running_job}")
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    expect(page.locator(".notes")).to_have_text("<img src=x onerror=alert(1)>")
    assert page.title().startswith(HOSTILE)
    with next((live.data_dir / "runs" / running_job).glob("attempt-1/logs/rank0.log")).open("a") as log:
        log.write("</script><b>from the log</b>\n")
    expect(page.locator("#log")).to_contain_text("</script><b>from the log</b>")
    assert page.locator("#log b, h1 b, .notes img").count() == 0


def test_a_phone_scrolls_no_page_sideways(page: Page, running_job: str) -> None:
    page.set_viewport_size({"width": 375, "height": 812})
    for path in ("/jobs", "/jobs/new", f"/jobs/{running_job}", "/datasets", "/models", "/nodes"):
        page.goto(path)
        if path.endswith(running_job):
            until(lambda: steps(page), "points of the curve")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 375, f"{path} is {width} pixels wide"


def test_dark_is_dark(page: Page, running_job: str) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(f"/jobs/{running_job}")
    until(lambda: steps(page), "points of the curve")
    ground, ink = page.evaluate(
        "() => { const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]; }"
    )
    assert brightness(ground) < 60 < 180 < brightness(ink)


def brightness(colour: str) -> float:
    parts = [float(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    return sum(parts) / len(parts)


def test_a_failure_says_what_to_do(page: Page, live: Service, client: Client, chat: str) -> None:
    spec = body(chat, name="nothing to learn")
    spec["dataset"]["max_length"] = 8
    job = client.submit(spec)
    live.wait_for(job["id"], "failed")
    page.goto(f"/jobs/{job['id']}")
    cause = page.get_by_role("alert")
    expect(cause).to_contain_text("no_trainable_tokens")
    expect(cause).to_contain_text("What to do")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    expect(page.locator("main")).to_contain_text("No line was written")
    expect(page.locator("main")).to_contain_text("No figures were reported.")
    expect(page.locator("canvas")).to_have_count(0)


def test_no_such_job(page: Page, watch: Watch) -> None:
    watch.expected.add("404")  # Chromium's own line about the answer
    answer = page.goto("/jobs/job_none")
    assert answer is not None
    assert answer.status == 404
    expect(page.get_by_role("heading", name="No such job")).to_be_visible()


def test_the_button_cancels(page: Page, live: Service, client: Client, running_job: str) -> None:
    """Last in this file: it ends the job that the others look at."""
    page.goto(f"/jobs/{running_job}")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#state")).to_have_text("cancelled")
    assert live.run_processes(running_job) == []
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
