"""The submit form and the datasets page: what is wrong stands beside its field or by its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import WAIT_MS, Watch
from tests.live import Service
from trainyard import Client

pytestmark = [pytest.mark.browser, pytest.mark.train, pytest.mark.xdist_group("dashboard")]
expect.set_options(timeout=WAIT_MS)


def test_a_file_becomes_a_job_that_is_followed_to_its_download(
    page: Page, live: Service, client: Client, chat_file: Path
) -> None:
    page.goto("/jobs/new")
    page.get_by_label("Name", exact=True).fill("from the form")
    page.get_by_label("or upload a file").set_input_files(chat_file)
    expect(page.locator("#upload-result")).to_contain_text("40 rows, format messages")
    page.get_by_label("Tokens a row").fill("128")
    page.get_by_label("LoRA rank").fill("4")
    page.get_by_label("More fields").fill(
        '{"training": {"max_steps": 8, "eval_steps": 4, "save_steps": 4, "logging_steps": 1}}'
    )
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/jobs/job_*")
    expect(page.locator("#state")).to_have_text("succeeded")
    expect(page.locator("#head")).to_contain_text("step 8 of 8")
    expect(page.locator("#rest")).to_contain_text("36 train rows, 4 evaluation rows")
    expect(page.locator("#rest")).to_contain_text("training_loss.png")
    expect(page.locator("#events")).to_contain_text("Succeeded")
    expect(page.locator("#events")).not_to_contain_text("Phase:")
    loss = page.evaluate("document.getElementById('loss-chart').plot.data[1]")
    assert len([value for value in loss if value is not None]) == 8
    with page.expect_download() as started:
        page.get_by_role("link", name="archive").first.click()
    archive = started.value.path().read_bytes()
    assert b"adapter_model.safetensors" in archive
    job = client.job(page.url.rsplit("/", 1)[1])
    assert (job["name"], job["adapter"]["r"], job["state"]) == ("from the form", 4, "succeeded")


def test_a_fault_stands_beside_its_field(page: Page, chat: str, watch: Watch) -> None:
    watch.expected.add("422")
    page.goto("/jobs/new")
    page.get_by_label("Learning rate").fill("fast")
    page.get_by_label("Processes").fill("64")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator('[data-fault="training.learning_rate"]')).not_to_be_empty()
    expect(page.get_by_label("Learning rate")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#faults")).to_contain_text("training.learning_rate")
    assert page.url.endswith("/jobs/new")
    page.get_by_label("Learning rate").fill("")
    page.get_by_label("Processes").fill("1")
    page.get_by_label("More fields").fill('{"training": {"lerning_rate": 0.1}}')
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("#faults")).to_contain_text("learning_rate")
    expect(page.locator('[data-fault="training.learning_rate"]')).to_be_empty()


def test_json_that_is_none_is_said_before_anything_is_sent(page: Page) -> None:
    page.goto("/jobs/new")
    page.get_by_label("More fields").fill("{training")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator('[data-fault="more"]')).to_contain_text("not JSON")
    expect(page.get_by_role("button", name="Submit")).to_be_enabled()


def test_a_bad_file_lists_its_lines(page: Page, client: Client, tmp_path: Path, watch: Watch) -> None:
    watch.expected.add("422")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "a", "completion": 4}\n{"prompt": </script><b>x\n')
    before = [dataset["id"] for dataset in client.datasets()]
    page.goto("/datasets")
    page.get_by_label("File").set_input_files(bad)
    page.get_by_role("button", name="Upload").click()
    fault = page.get_by_role("alert")
    expect(fault).to_contain_text("line 2")
    expect(fault).to_contain_text("line 3")
    assert fault.locator("b").count() == 0
    assert [dataset["id"] for dataset in client.datasets()] == before


def test_a_good_file_is_listed(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "<b>three.jsonl"
    file.write_text('{"prompt": "a", "completion": "b"}\n' * 3)
    page.goto("/datasets")
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("row").filter(has_text="three.jsonl")).to_contain_text("3")
    assert page.locator("td b").count() == 0
