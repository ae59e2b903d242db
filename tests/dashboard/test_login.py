"""Who may look: a key logs in, a wrong one is told so, and logging out ends it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import WAIT_MS, Watch, log_in
from tests.live import Service

pytestmark = [pytest.mark.browser, pytest.mark.train, pytest.mark.xdist_group("dashboard")]
expect.set_options(timeout=WAIT_MS)


def test_a_wrong_key_is_told_so(stranger: Page, watch: Watch) -> None:
    watch.expected.add("401")  # Chromium's own line about the answer
    stranger.goto("/jobs")
    stranger.get_by_label("API key").fill("ty_wrong")
    stranger.get_by_role("button", name="Log in").click()
    expect(stranger.get_by_role("alert")).to_contain_text("key")
    expect(stranger.get_by_label("API key")).to_have_attribute("aria-invalid", "true")
    assert stranger.context.cookies() == []


def test_the_login_leads_to_the_page_that_was_asked_for(stranger: Page, live: Service) -> None:
    log_in(stranger, live, "/datasets")
    expect(stranger.get_by_role("heading", name="Datasets")).to_be_visible()


def test_the_login_leads_nowhere_else(stranger: Page, live: Service) -> None:
    stranger.goto("/login?next=https://example.com/")
    stranger.get_by_label("API key").fill((live.data_dir / "api-key").read_text().strip())
    stranger.get_by_role("button", name="Log in").click()
    stranger.wait_for_url("**/jobs")
    assert stranger.url == f"{live.url}/jobs"


def test_the_key_itself_is_not_kept_in_the_browser(page: Page, live: Service) -> None:
    key = (live.data_dir / "api-key").read_text().strip()
    [cookie] = page.context.cookies()
    assert key not in cookie["value"]
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    readable = page.evaluate("document.cookie + JSON.stringify({...localStorage, ...sessionStorage})")
    assert key not in readable
    assert cookie["value"] not in readable


def test_logging_out_ends_the_session(page: Page) -> None:
    cookies = page.context.cookies()
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.context.add_cookies([{k: v for k, v in cookie.items() if k != "expires"} for cookie in cookies])  # type: ignore[misc]
    page.goto("/jobs")
    expect(page.get_by_label("API key")).to_be_visible()
