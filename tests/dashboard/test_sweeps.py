"""The pages of sweeps: one is started, its trials are listed and drawn, the best is marked, it is cancelled."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from api.core import moves, sweep_round
from api.core.db import now
from api.core.events import NewEvent
from api.core.states import State
from api.core.tables import Job, MetricRow
from tests.dashboard.conftest import WAIT_MS, Watch
from tests.dashboard.filled import HOSTILE, Filled
from tests.dashboard.test_access import AXE, GRAVE

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("dashboard")]
expect.set_options(timeout=WAIT_MS)


def run_trials(shelf: Filled, sweep_id: str, scores: list[float]) -> None:
    """A round, then each open trial logs its score and succeeds."""
    sweep_round.advance_all(shelf.database, shelf.settings, at=now())
    trials = shelf.http.get(f"/v1/sweeps/{sweep_id}/trials").json()["data"]
    for trial, score in zip(trials, scores, strict=False):
        with shelf.database.session() as session:
            for state in (State.QUEUED, State.STARTING, State.RUNNING):
                moves.move(session, trial["job_id"], state, NewEvent(state.value, state.value))
            row = {"job_id": trial["job_id"], "n": 1, "at": now(), "attempt": 1, "seq": 1, "kind": "train", "step": 9}
            session.add(MetricRow(**row, values={"loss": score}))
            session.get_one(Job, trial["job_id"]).step = 9
            moves.move(session, trial["job_id"], State.SUCCEEDED, NewEvent("succeeded", "Succeeded"))
    sweep_round.advance_all(shelf.database, shelf.settings, at=now())


def test_a_sweep_is_started_drawn_and_judged(visitor: Page, shelf: Filled, shelf_watch: Watch) -> None:
    shelf_watch.expected.add("422")
    body = {
        "name": f"rates {HOSTILE}",
        "job": {"model": "tiny", "dataset": {"train": shelf.add_dataset()}, "training": {"max_steps": 9}},
        "parameters": {
            "training.learning_rate": {"values": [1e-4, 1e-3]},
            "training.lr_scheduler_type": {"values": ["cosine", "linear"]},
        },
        "search": "grid", "n_parallel": 3, "objective": {"metric": "los"},
    }  # fmt: skip
    visitor.goto("/sweeps")
    visitor.get_by_role("link", name="New sweep").click()
    visitor.get_by_label("Sweep as JSON").fill(json.dumps(body))
    visitor.get_by_role("button", name="Start the sweep").click()
    expect(visitor.get_by_role("alert")).to_contain_text("Did you mean `loss`?")
    visitor.get_by_label("Sweep as JSON").fill(json.dumps(body | {"objective": {"metric": "loss"}}))
    visitor.get_by_role("button", name="Start the sweep").click()
    expect(visitor.get_by_role("heading", name=f"rates {HOSTILE}")).to_be_visible()
    expect(visitor.locator("#parallel")).to_contain_text("No trial has logged loss yet")
    run_trials(shelf, visitor.url.rpartition("/")[2], [0.7, 0.4, 0.9])
    visitor.reload()
    row = visitor.locator("#trials").get_by_role("row").filter(has_text="best")
    expect(row).to_contain_text("Trial 1")
    expect(row).to_contain_text("linear")
    expect(visitor.locator("#parallel polyline.trial")).to_have_count(3)
    expect(visitor.locator("#parallel polyline.is-best")).to_have_attribute("data-trial", "1")
    expect(visitor.locator("#over circle")).to_have_count(3)
    visitor.get_by_role("link", name="Trial 2").focus()
    expect(visitor.locator("#parallel polyline.is-shown")).to_have_attribute("data-trial", "2")
    for width in (1440, 375):
        visitor.set_viewport_size({"width": width, "height": 900})
        faults = visitor.evaluate(f"{AXE}\n;axe.run(document, {{resultTypes: ['violations']}})")["violations"]
        assert [fault["id"] for fault in faults if fault["impact"] in GRAVE] == []
        assert visitor.evaluate("document.documentElement.scrollWidth") <= width
    visitor.once("dialog", lambda dialog: dialog.accept())
    visitor.get_by_role("button", name="Cancel", exact=True).click()
    expect(visitor.locator("p.status .state")).to_contain_text("cancel")
    visitor.goto("/sweeps")
    expect(visitor.get_by_role("row").filter(has_text="rates")).to_contain_text("4 of 4")


def test_a_job_is_the_start_of_a_sweep(visitor: Page, shelf: Filled, shelf_watch: Watch) -> None:
    shelf_watch.expected.add("404")
    sent = {"model": "tiny", "dataset": {"train": shelf.add_dataset()}, "training": {"max_steps": 7}}
    job = shelf.http.post("/v1/jobs", json=sent).json()
    visitor.goto(f"/jobs/{job['id']}")
    visitor.get_by_role("link", name="Sweep this").click()
    body = json.loads(visitor.get_by_label("Sweep as JSON").input_value())
    assert body["job"]["training"] == {"max_steps": 7}
    visitor.get_by_role("button", name="Start the sweep").click()
    expect(visitor.locator("p.status .state")).to_have_text("running")
    shelf.http.post(f"/v1/sweeps/{visitor.url.rpartition('/')[2]}/cancel")
    visitor.goto("/sweeps/swp_none")
    expect(visitor.get_by_role("heading", name="No such sweep")).to_be_visible()
