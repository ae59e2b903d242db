"""The list of jobs: sorted, narrowed, told of changes, done several things with; quick with ten thousand."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from api.core.states import State
from api.core.tables import Job
from tests.dashboard.conftest import WAIT_MS
from tests.dashboard.filled import Filled, filled

pytestmark = [pytest.mark.xdist_group("dashboard")]
expect.set_options(timeout=WAIT_MS)
MANY = 10_000


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """Ten thousand jobs, of which a thousand wait and fifty run with curves."""
    with filled(tmp_path_factory.mktemp("crowd")) as service:
        service.add_node(n_devices=4)
        states = [State.RUNNING] * 50 + [State.QUEUED] * 1000 + [State.SUCCEEDED] * (MANY - 1050)
        jobs = service.add_jobs(
            [
                {
                    "name": f"job {index:05}",
                    "state": state.value,
                    "latest": {"loss": index / 7},
                    "planned_steps": 100,
                    "step": index % 100,
                    "labels": {"team": f"t{index % 5}"},
                }
                for index, state in enumerate(states)
            ]
        )
        for job in jobs[:50]:
            service.add_curve(job, 200)
        yield service


@pytest.mark.parametrize(
    "query", ["", "?sort=name&dir=asc", "?sort=loss&dir=desc&page=150", "?state=running", "?label=team:t3&name=99"]
)
def test_ten_thousand_jobs_are_listed_quickly(crowd: Filled, query: str) -> None:
    took = []
    for _ in range(5):
        began = time.monotonic()
        answer = crowd.http.get(f"/jobs/table{query}")
        took.append(time.monotonic() - began)
        assert answer.status_code == 200
        assert answer.text.count("data-choose") == (50 if "name=99" not in query else answer.text.count("data-choose"))
    print(f"{query or 'all'}: {min(took) * 1000:.0f} ms at best, {statistics.median(took) * 1000:.0f} ms in the middle")
    assert min(took) < 0.3


def test_a_page_with_curves_has_one_for_each_run(crowd: Filled) -> None:
    assert crowd.http.get("/jobs/table?state=running").text.count("<polyline") == 50


def test_every_job_is_on_one_page_and_one_only(crowd: Filled) -> None:
    found: list[str] = []
    for number in range(1, 5):
        text = crowd.http.get(f"/jobs/table?label=team:t1&name=job 00&sort=state&page={number}").text
        found += [part.split('"')[0] for part in text.split('type="checkbox" value="')[1:]]
    assert len(found) == len(set(found)) == 200


@pytest.mark.browser
def test_a_change_is_told_and_ticks_stay(visitor: Page, shelf: Filled) -> None:
    job = shelf.add_job("to be watched", state=State.RUNNING, planned_steps=10, step=1)
    shelf.add_job("another one", state=State.RUNNING, planned_steps=10, step=1)
    visitor.goto("/jobs?state=running&sort=name")
    row = visitor.get_by_role("row").filter(has_text="to be watched")
    row.get_by_role("checkbox").check()
    expect(row).to_contain_text("1 of 10")
    with shelf.database.session() as session:
        session.get_one(Job, job).step = 7
    expect(row).to_contain_text("7 of 10")
    expect(row.get_by_role("checkbox")).to_be_checked()
    expect(visitor.locator("#n-chosen")).to_have_text("1 job chosen")


@pytest.mark.browser
def test_several_jobs_are_labelled_compared_and_cancelled(visitor: Page, shelf: Filled) -> None:
    jobs = [shelf.add_job(f"many {index}", state=State.QUEUED) for index in range(3)]
    visitor.goto("/jobs?name=many")
    visitor.get_by_label("Choose all on this page").check()
    visitor.get_by_role("button", name="Label", exact=True).click()
    visitor.locator("#label-key").fill("wave")
    visitor.locator("#label-value").fill("<b>two")
    visitor.get_by_role("button", name="Set").click()
    expect(visitor.get_by_role("link", name="wave: <b>two")).to_have_count(3)
    visitor.get_by_role("link", name="wave: <b>two").first.click()
    expect(visitor.locator("tbody tr")).to_have_count(3)
    visitor.get_by_label("Choose all on this page").check()
    visitor.once("dialog", lambda dialog: dialog.accept())
    visitor.get_by_role("button", name="Cancel them").click()
    expect(visitor.locator("tbody .state.cancelled")).to_have_count(3)
    visitor.get_by_role("button", name="Compare").click()
    visitor.wait_for_url("**/compare?jobs=*")
    for job in jobs:
        assert job in visitor.url


@pytest.mark.browser
def test_a_view_is_sorted_saved_and_survives_a_reload(visitor: Page, shelf: Filled) -> None:
    for name, loss in (("sort b", 2.0), ("sort a", 3.0), ("sort c", 1.0)):
        shelf.add_job(name, latest={"loss": loss})
    visitor.goto("/jobs?name=sort")
    visitor.get_by_role("link", name="Loss").click()
    names = visitor.locator("tbody td:nth-child(2) > a")
    expect(names).to_have_text(["sort c", "sort b", "sort a"])
    expect(visitor.get_by_role("columnheader", name="Loss")).to_have_attribute("aria-sort", "ascending")
    visitor.once("dialog", lambda dialog: dialog.accept("<b>mine"))
    visitor.get_by_role("button", name="Save this view").click()
    visitor.goto("/jobs")
    visitor.get_by_role("link", name="<b>mine").click()
    expect(names).to_have_text(["sort c", "sort b", "sort a"])
    visitor.reload()
    expect(names).to_have_text(["sort c", "sort b", "sort a"])
    visitor.get_by_role("button", name="Forget the view <b>mine").click()
    expect(visitor.get_by_role("link", name="<b>mine")).to_have_count(0)
