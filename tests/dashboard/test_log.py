"""The log of a run: tens of MB, of which the page holds little; searched, filtered, read backwards, followed."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from api.core.states import State
from tests.dashboard.conftest import WAIT_MS
from tests.dashboard.filled import HOSTILE, Filled
from tests.live import until

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("dashboard")]
expect.set_options(timeout=WAIT_MS)

N_LINES = 250_000


@pytest.fixture(scope="module")
def long(shelf: Filled) -> str:
    """A log of 50 MB, with one needle far from its end."""
    job = shelf.add_job("talkative", state=State.RUNNING)
    filler = "a line as a trainer writes it, of two hundred characters. " * 3
    texts = [f"{number} {filler}" for number in range(N_LINES)]
    texts[1234] = f"{HOSTILE} needle"
    texts[200_000] = "ValueError: it went wrong"
    texts[200_001] = "UserWarning: it may go wrong"
    shelf.add_log(job, texts)
    return job


def n_rows(page: Page) -> int:
    return page.locator("#log > div").count()


def top(page: Page) -> int:
    return int(page.locator("#log > div").first.get_attribute("data-n") or 0)


def test_the_end_is_shown_and_older_lines_come_when_they_are_wanted(visitor: Page, long: str) -> None:
    visitor.goto(f"/jobs/{long}")
    expect(visitor.locator("#log > div").last).to_have_attribute("data-n", str(N_LINES))
    first = top(visitor)
    for _ in range(8):
        before = top(visitor)
        visitor.evaluate("document.getElementById('log').scrollTop = 0")
        until(lambda before=before: top(visitor) < before, "older lines", within_s=20)  # type: ignore[misc]
    assert top(visitor) <= first - 4000
    assert n_rows(visitor) <= 2000
    expect(visitor.get_by_label("Follow")).not_to_be_checked()
    visitor.get_by_role("button", name="Jump to end").click()
    expect(visitor.locator("#log > div").last).to_have_attribute("data-n", str(N_LINES))


def test_a_search_finds_its_line_and_keeps_it_text(visitor: Page, long: str) -> None:
    visitor.goto(f"/jobs/{long}")
    visitor.get_by_label("Search", exact=True).fill("NEEDLE")
    expect(visitor.locator("#log > div")).to_have_count(1)
    expect(visitor.locator("#log")).to_contain_text(f"{HOSTILE} needle")
    assert visitor.locator("#log b").count() == 0
    assert "search=NEEDLE" in visitor.url
    visitor.reload()
    expect(visitor.locator("#log > div")).to_have_count(1)
    visitor.get_by_label("Search", exact=True).fill("no such thing at all")
    expect(visitor.locator("#log-said")).to_contain_text("No line is like that")


def test_levels_and_ranks_narrow_it(visitor: Page, long: str) -> None:
    visitor.goto(f"/jobs/{long}?level=error")
    expect(visitor.locator("#log > div")).to_have_count(1)
    expect(visitor.locator("#log")).to_contain_text("ValueError")
    visitor.get_by_label("Level").select_option("warnings and errors")
    expect(visitor.locator("#log > div")).to_have_count(2)
    visitor.get_by_label("Rank").fill("1")
    expect(visitor.locator("#log > div")).to_have_count(1)
    expect(visitor.locator("#log")).to_contain_text("UserWarning")


def test_new_lines_come_by_themselves_and_follow_the_filter(visitor: Page, shelf: Filled) -> None:
    job = shelf.add_job("short", state=State.RUNNING)
    shelf.add_log(job, [f"line {number}" for number in range(10)])
    visitor.goto(f"/jobs/{job}")
    expect(visitor.locator("#log > div")).to_have_count(10)
    shelf.add_log(job, ["one more"])
    expect(visitor.locator("#log > div")).to_have_count(11)
    visitor.get_by_label("Level").select_option("errors")
    expect(visitor.locator("#log-said")).to_contain_text("No line is like that")
    shelf.add_log(job, ["fine", "ERROR: not fine"])
    expect(visitor.locator("#log > div")).to_have_count(1)
    expect(visitor.locator("#log")).to_contain_text("not fine")
