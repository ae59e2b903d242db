"""The submit form beyond its fields: clones, options, a look at the rows, what it comes to, the same in words."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import WAIT_MS, Watch
from tests.dashboard.filled import HOSTILE, Filled
from tests.dashboard.rooms import Rooms, furnish

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("dashboard")]
expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def rooms(shelf: Filled) -> Rooms:
    return furnish(shelf)


def body(page: Page) -> dict[str, Any]:
    page.get_by_role("tab", name="JSON").click()
    found: dict[str, Any] = json.loads(page.locator("#body").inner_text())
    return found


def test_the_picked_rows_are_shown_with_lengths_and_columns(visitor: Page, rooms: Rooms) -> None:
    visitor.goto("/jobs/new")
    visitor.get_by_label("Dataset", exact=True).select_option(rooms.dataset)
    peek = visitor.locator("#peek")
    expect(peek).to_contain_text(f"{HOSTILE} 0")
    assert peek.locator("b").count() == 0
    expect(peek.get_by_role("img")).to_have_attribute(
        "aria-label", "Characters a row, 0 to 120, in 45 rows: 66 on average, 106 at most"
    )
    peek.locator("summary").click()
    peek.get_by_label("text", exact=True).select_option("completion")
    assert body(visitor)["dataset"]["columns"] == {"text": "completion"}


def test_what_it_comes_to_is_said_before_it_is_sent(visitor: Page, rooms: Rooms, shelf_watch: Watch) -> None:
    shelf_watch.expected.add("422")
    visitor.goto("/jobs/new?preset=trial")
    visitor.get_by_label("Dataset", exact=True).select_option(rooms.dataset)
    check = visitor.locator("#check")
    expect(check).to_contain_text("20 steps planned")
    expect(check).to_contain_text("4 rows held out")
    visitor.get_by_label("Learning rate").fill("-3")
    expect(check).to_contain_text("training.learning_rate")
    assert visitor.url.endswith("/jobs/new?preset=trial")


def test_a_clone_fills_the_form_and_makes_an_equal_body(visitor: Page, shelf: Filled, rooms: Rooms) -> None:
    visitor.goto(f"/jobs/new?clone={rooms.done}&checkpoint=best")
    expect(visitor.get_by_label("Learning rate")).to_have_value("0.001")
    expect(visitor.get_by_label("warmup_steps", exact=True)).to_have_value("3")
    made = body(visitor)
    assert made["adapter"] == {"type": "lora", "r": 4}  # what the job did not say stays unsaid
    assert made["training"] == {"learning_rate": 0.001, "warmup_steps": 3}
    assert made["continue_from"] == {"job": rooms.done, "checkpoint": "best", "mode": "full"}
    assert (made["labels"], made["notes"]) == ({"team": HOSTILE}, HOSTILE)
    assert made["dataset"] == {"train": rooms.dataset, "eval_fraction": 0.2, "max_length": 64}


def test_each_kind_of_adapter_has_its_own_fields(visitor: Page, rooms: Rooms) -> None:
    visitor.goto("/jobs/new")
    kind = visitor.get_by_label("Train", exact=True)
    expect(visitor.get_by_label("LoRA rank")).to_be_visible()
    expect(visitor.get_by_label("Blocks to train")).to_be_hidden()
    visitor.get_by_label("Base held in").select_option("nf4")
    made = body(visitor)
    assert (made["adapter"]["type"], made["quantization"]) == ("lora", {"bits": "nf4"})
    kind.select_option("freeze")
    expect(visitor.get_by_label("LoRA rank")).to_be_hidden()
    made = body(visitor)
    assert made["adapter"] == {"type": "freeze", "trainable_layers": 2, "from": "last"}
    assert "quantization" not in made
    kind.select_option("p_tuning")
    visitor.get_by_label("Learnt positions").fill("8")
    assert body(visitor)["adapter"] == {"type": "p_tuning", "num_virtual_tokens": 8}
    kind.select_option("")
    assert "adapter" not in body(visitor)


def test_an_option_is_found_by_its_help_and_sent(visitor: Page, shelf: Filled, rooms: Rooms) -> None:
    visitor.goto("/jobs/new")
    visitor.get_by_label("Dataset", exact=True).select_option(rooms.dataset)
    visitor.get_by_text("More training options").click()
    visitor.get_by_label("Search options").fill("clipped norm")
    visitor.get_by_role("button", name="max_grad_norm").click()
    visitor.get_by_label("max_grad_norm", exact=True).fill("0.5")
    assert body(visitor)["training"]["max_grad_norm"] == 0.5
    visitor.get_by_role("button", name="Submit").click()
    visitor.wait_for_url("**/jobs/job_*")
    job = shelf.http.get(f"/v1/jobs/{visitor.url.rsplit('/', 1)[1]}").json()
    assert job["training"]["max_grad_norm"] == 0.5


def test_the_same_job_in_other_words(visitor: Page, rooms: Rooms) -> None:
    visitor.goto(f"/jobs/new?clone={rooms.done}")
    visitor.get_by_label("Name", exact=True).fill('it\'s: "odd"')
    wanted = body(visitor)
    visitor.get_by_role("tab", name="JSON").press("ArrowRight")
    expect(visitor.get_by_role("tab", name="YAML")).to_have_attribute("aria-selected", "true")
    assert yaml.safe_load(visitor.locator("#body").inner_text()) == wanted
    visitor.get_by_role("tab", name="curl").click()
    command = visitor.locator("#body").inner_text()
    quoted = command.partition("-d '")[2].rpartition("'")[0].replace("'\\''", "'")
    assert json.loads(quoted) == wanted
    visitor.get_by_role("tab", name="Python").click()
    program = visitor.locator("#body").inner_text()
    submitted = program.partition("client.submit(")[2].partition(")\n    print")[0]
    assert eval(submitted, {"__builtins__": {}}) == wanted
