"""Submitting, listing, looking at and cancelling jobs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event, func, select
from starlette.testclient import TestClient

from api.core import moves
from api.core.db import Database
from api.core.events import NewEvent
from api.core.ids import new_id
from api.core.states import State
from api.core.tables import Job
from tests.api.http.conftest import error_of

Body = Callable[..., dict[str, Any]]


def n_jobs(database: Database) -> int:
    with database.reading() as session:
        return session.scalar(select(func.count()).select_from(Job)) or 0


def test_a_job_is_made_and_its_check_is_asked_for(client: TestClient, body: Body, sent: list[Any]) -> None:
    answer = client.post("/v1/jobs", json=body(name="first", labels={"team": "a"}, priority=5, notes="two\nlines"))
    job = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    assert (job["state"], job["name"], job["labels"], job["priority"]) == ("validating", "first", {"team": "a"}, 5)
    # 100 rows, 4 a step, 3 epochs
    assert job["planned_steps"] == 75
    assert job["resolved"]["training"]["per_device_train_batch_size"] == 4
    assert job["resolved"]["parallel"]["strategy"] == "ddp"
    assert sent == [("trainyard.preflight", [job["id"]])]
    assert client.get(answer.headers["location"]).json() == job
    assert client.get(f"/v1/jobs/{job['id']}/events").json()["data"][0]["kind"] == "created"


def test_a_job_names_its_dataset_by_name_and_shows_its_id(
    client: TestClient, body: Body, dataset: Callable[..., str]
) -> None:
    dataset(name="twice.jsonl")
    newest = dataset(name="twice.jsonl")
    job = client.post("/v1/jobs", json=body(dataset={"train": "twice.jsonl"})).json()
    assert job["dataset"]["train"] == newest
    assert job["name"] == "tiny on twice.jsonl"


def test_a_name_is_only_a_label(client: TestClient, body: Body) -> None:
    job = client.post("/v1/jobs", json=body(name="../x")).json()
    assert job["name"] == "../x"
    assert ".." not in job["id"]


@pytest.mark.parametrize("job_id", ["nope", "job_0000000000000000000000", "..%2f..%2fetc", "%00", "job_" + "x" * 9000])
def test_an_unknown_job_is_not_found(client: TestClient, job_id: str) -> None:
    for path in ("", "/events", "/metrics", "/metrics/series", "/logs"):
        answer = client.get(f"/v1/jobs/{job_id}{path}")
        assert answer.status_code == 404, answer.text
        assert answer.json()["error"]["code"] == "not_found"


# Once whatever is sent twice -----------------------------------------------------------------------------------------


def test_the_same_key_and_body_give_the_same_job(client: TestClient, body: Body, database: Database) -> None:
    key = {"Idempotency-Key": "k-1"}
    first = client.post("/v1/jobs", json=body(name="once"), headers=key)
    again = client.post("/v1/jobs", json={**body(name="once"), "priority": 0}, headers=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert n_jobs(database) == 1


def test_the_same_key_with_another_body_is_refused(client: TestClient, body: Body, database: Database) -> None:
    key = {"Idempotency-Key": "k-1"}
    client.post("/v1/jobs", json=body(name="once"), headers=key)
    error = error_of(client.post("/v1/jobs", json=body(name="other"), headers=key), 422)
    assert (error["code"], error["param"]) == ("idempotency_key_reused", "Idempotency-Key")
    assert n_jobs(database) == 1


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\there"])
def test_a_key_that_cannot_be_kept_is_refused(client: TestClient, body: Body, key: str) -> None:
    error = error_of(client.post("/v1/jobs", json=body(), headers={"Idempotency-Key": key}), 400)
    assert error["param"] == "Idempotency-Key"


def test_equal_requests_at_the_same_moment_make_one_job(client: TestClient, body: Body, database: Database) -> None:
    sent = body(name="race")

    def submit(_: int) -> Any:
        return client.post("/v1/jobs", json=sent, headers={"Idempotency-Key": "race"})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(submit, range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert n_jobs(database) == 1


# Lists ---------------------------------------------------------------------------------------------------------------


def test_a_list_is_paged_newest_first(client: TestClient, body: Body) -> None:
    made = [client.post("/v1/jobs", json=body(name=f"job {n}")).json()["id"] for n in range(5)]
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 2}
    for _ in range(3):
        page = client.get("/v1/jobs", params=query).json()
        seen += [job["id"] for job in page["data"]]
        query["after"] = page["next"]
    assert seen == sorted(made, reverse=True)
    assert page["has_more"] is False
    assert page["next"] is None
    assert "resolved" not in page["data"][0]
    assert page["data"][0]["metric_for_best"] == "loss"


def test_a_list_is_narrowed_by_state_label_and_name(client: TestClient, body: Body, database: Database) -> None:
    first = client.post("/v1/jobs", json=body(name="100% Alpha", labels={"a": "1", "b": "2"})).json()["id"]
    second = client.post("/v1/jobs", json=body(name="beta", labels={"a": "1", "c": "x:y"})).json()["id"]
    with database.session() as session:
        moves.move(session, second, State.QUEUED, NewEvent("queued", "Queued"))

    def found(**query: Any) -> list[str]:
        return [job["id"] for job in client.get("/v1/jobs", params=query).json()["data"]]

    assert found(label="a:1") == [second, first]
    assert found(label=["a:1", "b:2"]) == [first]
    assert found(label="c:x:y") == [second]
    assert found(label="a:2") == []
    assert found(state="queued") == [second]
    assert found(state=["queued", "validating"]) == [second, first]
    assert found(name="ALPHA") == [first]
    assert found(name="0% a") == [first]
    assert found(name="_") == []


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("after=nope", "after"),
        ("after=%00", "after"),
        ("state=lost", "state[0]"),
        ("label=nocolon", "label"),
    ],
)
def test_a_bad_parameter_of_a_list_is_named(client: TestClient, query: str, param: str) -> None:
    assert error_of(client.get(f"/v1/jobs?{query}"), 422)["param"] == param


def test_a_list_takes_the_same_few_queries_however_long(client: TestClient, body: Body, database: Database) -> None:
    made = client.post("/v1/jobs", json=body()).json()["id"]
    with database.session() as session:
        row = session.get_one(Job, made)
        columns = {name: getattr(row, name) for name in Job.__table__.columns.keys() if name != "id"}  # noqa: SIM118
        session.add_all(Job(id=new_id("job"), **columns) for _ in range(300))
    n_queries = []

    def count(*_: Any) -> None:
        n_queries[-1] += 1

    client.get("/v1/jobs")  # the key is looked up once and kept for some seconds
    event.listen(database.engine, "before_cursor_execute", count)
    for limit in (1, 300):
        n_queries.append(0)
        assert len(client.get("/v1/jobs", params={"limit": limit}).json()["data"]) == limit
    event.remove(database.engine, "before_cursor_execute", count)
    assert n_queries[0] == n_queries[1]
    assert n_queries[1] <= 2


# The queue and cancelling --------------------------------------------------------------------------------------------


def test_a_queued_job_shows_its_place_and_why_it_waits(
    client: TestClient, job: dict[str, Any], database: Database
) -> None:
    assert job["queue_position"] is None
    with database.session() as session:
        moves.move(session, job["id"], State.QUEUED, NewEvent("queued", "Queued"))
    shown = client.get(f"/v1/jobs/{job['id']}").json()
    assert shown["queue_position"] == 1
    assert "no node" in shown["waiting_reason"]
    assert client.get("/v1/jobs").json()["data"][0]["waiting_reason"] == shown["waiting_reason"]


def test_a_job_without_a_process_is_cancelled_at_once(client: TestClient, job: dict[str, Any]) -> None:
    answer = client.post(f"/v1/jobs/{job['id']}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    error = error_of(client.post(f"/v1/jobs/{job['id']}/cancel"), 409)
    assert error["code"] == "already_finished"


def test_a_figure_that_is_not_finite_is_null_in_the_job(
    client: TestClient, job: dict[str, Any], database: Database
) -> None:
    with database.session() as session:
        session.get_one(Job, job["id"]).latest = {"loss": "NaN", "learning_rate": 0.1}
    shown = client.get(f"/v1/jobs/{job['id']}").json()
    assert shown["latest"] == {"loss": None, "learning_rate": 0.1}
    assert shown["latest_nonfinite"] == {"loss": "NaN"}


@pytest.mark.parametrize("query", ["name=%00", "name=tiny%00", "label=%00:a", "label=a:%00"])
def test_a_nul_in_a_filter_finds_nothing(client: TestClient, job: dict[str, Any], query: str) -> None:
    """SQLite's LIKE would find it in every text, and PostgreSQL refuses it."""
    answer = client.get(f"/v1/jobs?{query}")
    assert (answer.status_code, answer.json()["data"]) == (200, [])
