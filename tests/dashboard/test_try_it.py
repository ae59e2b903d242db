"""The page that asks: both models answer side by side, by keyboard, live; text stays text; a reply can be stopped."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.dashboard.test_access import AXE, GRAVE
from tests.live import Service, body
from trainyard import Client

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("dashboard")]

HOSTILE = "<img src=x onerror=alert(1)><b>x</b>"


@pytest.fixture(scope="module")
def done_job(live: Service, chat: str) -> str:
    with live.client() as client:
        job_id = str(client.submit(body(chat, name="to be asked", steps=4))["id"])
    live.wait_for(job_id, "succeeded")
    return job_id


def test_base_and_checkpoint_answer_side_by_side(page: Page, live: Service, client: Client, done_job: str) -> None:
    page.goto(f"/jobs/{done_job}")
    page.get_by_role("link", name="try it, step 4").click()
    expect(page.get_by_label("Checkpoint", exact=True)).to_have_value("4")
    page.get_by_label("Prompt", exact=True).fill("Say 7")
    page.keyboard.press("Control+Enter")
    for variant in ("tuned", "base"):
        place = page.locator(f"[data-variant={variant}]")
        expect(place.get_by_role("status")).to_contain_text("tokens", timeout=60_000)
        assert place.locator("[data-reply]").text_content()
    texts = page.locator("[data-reply]").all_text_contents()
    assert texts[0] != texts[1]
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


def test_a_long_reply_is_stopped_by_escape(page: Page, done_job: str) -> None:
    page.goto(f"/try?model={done_job}")
    page.get_by_label("Prompt", exact=True).fill("Say 7")
    page.get_by_label("Ask the base model too").uncheck()
    page.get_by_text("System message and settings").click()
    page.get_by_label("Longest reply, tokens").fill("1900")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("[data-variant=tuned] [role=status]")).to_have_text("writing", timeout=60_000)
    page.keyboard.press("Escape")
    expect(page.locator("[data-variant=tuned] [role=status]")).to_have_text("stopped")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 375)])
def test_hostile_replies_stay_text_and_everybody_can_read_them(
    page: Page, done_job: str, scheme: Any, width: int
) -> None:
    def hostile(route: Route) -> None:
        piece = f'event: piece\ndata: {{"text": "{HOSTILE}"}}\n\n'
        done = 'event: done\ndata: {"finish_reason": "stop", "completion_tokens": 3}\n\n'
        route.fulfill(body=piece + done, content_type="text/event-stream")

    page.route("**/v1/generations", hostile)
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"/try?model={done_job}")
    page.get_by_label("Prompt", exact=True).fill(HOSTILE)
    page.keyboard.press("Control+Enter")
    expect(page.locator("[data-variant=tuned] [data-reply]")).to_have_text(HOSTILE)
    assert page.locator("[data-reply] *").count() == 0
    faults = page.evaluate(f"{AXE}\n;axe.run(document, {{resultTypes: ['violations']}})")["violations"]
    assert [fault["id"] for fault in faults if fault["impact"] in GRAVE] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
