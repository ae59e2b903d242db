"""The settings page: keys are made, shown once and revoked; webhooks are added, tried and looked into."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import WAIT_MS, Watch
from tests.dashboard.filled import HOSTILE, Filled

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("dashboard")]
expect.set_options(timeout=WAIT_MS)


def test_a_key_is_made_shown_once_and_revoked(visitor: Page, shelf: Filled) -> None:
    visitor.goto("/settings")
    visitor.get_by_label("Name of the key").fill(HOSTILE)
    visitor.get_by_label("Role", exact=True).select_option(label="permissions one by one")
    visitor.get_by_label("jobs:read").check()
    visitor.get_by_role("button", name="Make key").click()
    secret = visitor.locator("#key-result code").inner_text()
    assert shelf.http.get("/v1/jobs", headers={"Authorization": f"Bearer {secret}"}).status_code == 200
    visitor.get_by_role("button", name="I have kept it").click()
    row = visitor.locator("#keys").get_by_role("row").filter(has_text=HOSTILE)
    expect(row).to_contain_text("jobs:read")
    assert secret not in visitor.content()
    visitor.once("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Revoke").click()
    expect(row).to_have_count(0)
    assert shelf.http.get("/v1/jobs", headers={"Authorization": f"Bearer {secret}"}).status_code == 401


def test_the_last_admin_key_is_not_revoked(visitor: Page, shelf_watch: Watch) -> None:
    shelf_watch.expected.add("409")
    visitor.goto("/settings")
    visitor.once("dialog", lambda dialog: dialog.accept())
    visitor.get_by_role("button", name="Revoke first key").click()
    expect(visitor.get_by_role("alert")).to_contain_text("last admin key")


def test_a_webhook_is_added_tried_and_looked_into(visitor: Page, shelf: Filled, shelf_watch: Watch) -> None:
    shelf_watch.expected.add("422")
    visitor.goto("/settings")
    visitor.get_by_label("Name of the webhook").fill("our service")
    visitor.get_by_label("URL").fill("https://hooks.example.invalid/yard")
    visitor.get_by_label("Events").fill("job.nothing")
    visitor.get_by_role("button", name="Add webhook").click()
    expect(visitor.get_by_role("alert")).to_contain_text("job.nothing")
    visitor.get_by_label("Events").fill("job.failed, job.succeeded")
    visitor.get_by_role("button", name="Add webhook").click()
    expect(visitor.locator("#webhook-result code")).to_contain_text("whsec_")
    visitor.get_by_role("button", name="I have kept it").click()
    visitor.get_by_role("button", name="Send a test to our service").click()
    expect(visitor.locator("#webhook-result")).to_contain_text("Test: pending")
    visitor.get_by_role("link", name="our service").click()
    expect(visitor.get_by_role("row").filter(has_text="webhook.test")).to_contain_text("pending")
    visitor.once("dialog", lambda dialog: dialog.accept())
    visitor.get_by_role("button", name="Delete").click()
    visitor.wait_for_url("**/settings")
    expect(visitor.get_by_role("link", name="our service")).to_have_count(0)
