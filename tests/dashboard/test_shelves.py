"""Nodes that are drained, rows that are paged, datasets and models that come and go, words on a job, its buttons."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from api.core.states import State
from tests.dashboard.conftest import WAIT_MS, Watch
from tests.dashboard.filled import HOSTILE, Filled

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("dashboard")]
expect.set_options(timeout=WAIT_MS)


def test_a_node_is_drained_and_given_work_again(visitor: Page, shelf: Filled) -> None:
    shelf.add_node("node of the drain")
    visitor.goto("/nodes")
    card = visitor.locator("section.card").filter(has_text="node of the drain")
    expect(card).to_contain_text("3.2 load over 8 cores")
    expect(card).to_contain_text("6.0 GB of 10.0 GB memory")
    card.get_by_role("button", name="Drain", exact=True).click()
    expect(card.locator("h2")).to_contain_text("cordoned")  # nothing ran there
    card.get_by_role("button", name="Give it work again").click()
    expect(card.locator("h2")).to_contain_text("ready")


def test_rows_are_paged_and_a_dataset_is_deleted(visitor: Page, shelf: Filled, shelf_watch: Watch) -> None:
    dataset = shelf.add_dataset("<b>gone.jsonl", n_rows=45)
    visitor.goto("/datasets")
    visitor.get_by_role("link", name="<b>gone.jsonl").click()
    expect(visitor.locator(".rows > li")).to_have_count(20)
    visitor.get_by_role("link", name="Next").click()
    visitor.get_by_role("link", name="Next").click()
    expect(visitor.locator(".rows > li")).to_have_count(5)
    expect(visitor.locator(".rows")).to_contain_text(f"{HOSTILE} 44")
    assert visitor.locator(".rows b").count() == 0
    visitor.once("dialog", lambda dialog: dialog.accept())
    visitor.get_by_role("button", name="Delete").click()
    visitor.wait_for_url("**/datasets")
    expect(visitor.get_by_role("link", name="<b>gone.jsonl")).to_have_count(0)
    shelf_watch.expected.add("404")
    visitor.goto(f"/datasets/{dataset}")
    expect(visitor.get_by_role("heading", name="No such dataset")).to_be_visible()


def test_a_model_is_added_refused_and_taken_off(visitor: Page, shelf_watch: Watch) -> None:
    visitor.goto("/models")
    visitor.get_by_label("Name").fill("from the hub")
    visitor.get_by_label("Folder on the nodes, or hub id").fill("somebody/some-model")
    visitor.get_by_role("button", name="Add").click()
    row = visitor.get_by_role("row").filter(has_text="somebody/some-model")
    expect(row).to_contain_text("from the hub")
    visitor.once("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Take off from the hub").click()
    expect(row).to_have_count(0)
    shelf_watch.expected.add("422")
    visitor.get_by_label("Name").fill("nowhere")
    visitor.get_by_label("Folder on the nodes, or hub id").fill("/no/such/folder")
    visitor.get_by_role("button", name="Add").click()
    expect(visitor.get_by_role("alert")).to_contain_text("/no/such/folder")


def test_settings_hide_their_secrets(visitor: Page, shelf: Filled) -> None:
    visitor.goto("/settings")
    expect(visitor.get_by_role("row").filter(has_text="max_upload_bytes")).to_contain_text("Largest dataset file")
    assert shelf.key not in visitor.content()


def test_words_on_a_job_are_changed_and_stay_text(visitor: Page, shelf: Filled) -> None:
    job = shelf.add_job("with words")
    visitor.goto(f"/jobs/{job}")
    visitor.get_by_label("Label", exact=True).fill("<b>key")
    visitor.get_by_label("Value", exact=True).fill("<b>value")
    visitor.get_by_role("button", name="Add").click()
    expect(visitor.locator("#labels")).to_contain_text("<b>key: <b>value")
    visitor.get_by_text("Write notes").click()
    visitor.get_by_label("Notes", exact=True).fill("<b>so it is")
    visitor.get_by_role("button", name="Save", exact=True).click()
    expect(visitor.locator(".notes")).to_have_text("<b>so it is")
    visitor.get_by_role("button", name="Take the label <b>key away").click()
    expect(visitor.locator("#labels")).to_contain_text("No labels")
    assert shelf.http.get(f"/v1/jobs/{job}").json()["notes"] == "<b>so it is"


def test_a_job_is_paused_resumed_cancelled_and_retried(visitor: Page, shelf: Filled, shelf_watch: Watch) -> None:
    dataset = shelf.add_dataset()
    spec = {"model": "tiny", "dataset": {"train": dataset}, "adapter": None, "training": {}, "parallel": {}}
    job = shelf.add_job("acted upon", state=State.QUEUED, spec={**spec, "continue_from": None})
    visitor.goto(f"/jobs/{job}")
    state = visitor.locator("#state")
    visitor.get_by_role("button", name="Pause").click()
    expect(state).to_have_text("paused")
    visitor.get_by_role("button", name="Resume").click()
    expect(state).to_have_text("queued")
    visitor.get_by_role("button", name="Cancel").click()
    expect(state).to_have_text("cancelled")
    visitor.get_by_role("button", name="Retry").click()
    visitor.wait_for_url(lambda url: "/jobs/job_" in url and job not in url)
    expect(state).to_have_text("validating")
    expect(visitor.locator("#events")).to_contain_text(f"A retry of {job}")
    visitor.get_by_role("link", name="Clone").click()
    visitor.wait_for_url("**/jobs/new?clone=*")
    expect(visitor.get_by_label("Dataset", exact=True)).to_have_value(dataset)
