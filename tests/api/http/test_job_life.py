"""Pausing, resuming, changing, retrying and cloning over HTTP; and taking nodes out of work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.core import attempts
from api.core.attempts import Outcome
from api.core.db import Database
from api.core.moves import NewEvent, move
from api.core.states import State
from tests.api.core.rows import make_node, started_record
from tests.api.http.conftest import error_of

Body = Callable[..., dict[str, Any]]
Sent = list[tuple[str, Any]]


def to(database: Database, job_id: str, *states: State) -> None:
    with database.session() as session:
        for state in states:
            assert move(session, job_id, state, NewEvent(state.value, state.value)), state


def run_it(database: Database, job_id: str, *, started: bool = True) -> tuple[str, str]:
    """(node's name, attempt): the job queued and running on a node of its own."""
    to(database, job_id, State.QUEUED)
    name = f"n-{job_id}"
    node_id = make_node(database, 1, name=name)
    with database.session() as session:
        attempt = attempts.place(session, job_id, node_id, [0])
        assert attempt is not None
        if started:
            attempts.claim_launch(session, attempt.id)
            attempts.take_records(session, attempt.id, [started_record()])
        return name, attempt.id


def end(database: Database, attempt_id: str, result: Any = "stopped") -> None:
    with database.session() as session:
        attempts.end(session, attempt_id, Outcome(result=result))


def last_message(client: TestClient, job_id: str) -> str:
    return str(client.get(f"/v1/jobs/{job_id}/events").json()["data"][-1]["message"])


# Pause and resume ----------------------------------------------------------------------------------------------------


def test_a_queued_job_is_paused_and_resumed(client: TestClient, job: dict[str, Any], database: Database) -> None:
    to(database, job["id"], State.QUEUED)
    answer = client.post(f"/v1/jobs/{job['id']}/pause")
    assert (answer.status_code, answer.json()["state"]) == (200, "paused")
    assert last_message(client, job["id"]) == "Paused (by test)"
    answer = client.post(f"/v1/jobs/{job['id']}/resume")
    assert (answer.status_code, answer.json()["state"]) == (200, "queued")
    assert last_message(client, job["id"]) == "Queued again (by test)"


def test_a_run_hears_at_once_that_it_is_to_pause(
    client: TestClient, job: dict[str, Any], database: Database, sent: Sent
) -> None:
    _name, attempt_id = run_it(database, job["id"])
    answer = client.post(f"/v1/jobs/{job['id']}/pause")
    assert (answer.status_code, answer.json()["state"]) == (202, "pausing")
    assert sent[-1] == ("trainyard.stop", [attempt_id])
    assert error_of(client.post(f"/v1/jobs/{job['id']}/resume"), 409)["code"] == "not_paused"
    end(database, attempt_id)
    assert client.post(f"/v1/jobs/{job['id']}/resume").json()["state"] == "queued"
    assert sent[-1] == ("trainyard.schedule", [])


def test_cancel_says_who_asked_and_works_while_pausing(
    client: TestClient, job: dict[str, Any], database: Database, sent: Sent
) -> None:
    _name, attempt_id = run_it(database, job["id"])
    client.post(f"/v1/jobs/{job['id']}/pause")
    answer = client.post(f"/v1/jobs/{job['id']}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (202, "cancelling")
    assert "(by test)" in last_message(client, job["id"])
    assert sent[-1] == ("trainyard.stop", [attempt_id])


def test_a_job_under_check_cannot_be_paused_yet(client: TestClient, job: dict[str, Any]) -> None:
    error = error_of(client.post(f"/v1/jobs/{job['id']}/pause"), 409)
    assert error["code"] == "not_pausable"
    assert "check" in error["message"]


@pytest.mark.parametrize("verb", ["pause", "resume", "retry", "clone", "cancel"])
def test_what_is_asked_of_no_job_is_not_found(client: TestClient, verb: str) -> None:
    error_of(client.post(f"/v1/jobs/job_0000000000000000000000/{verb}"), 404)
    error_of(client.patch("/v1/jobs/nope", json={}), 404)


# Changes -------------------------------------------------------------------------------------------------------------


def test_labels_are_merged_and_notes_replaced_in_any_state(client: TestClient, body: Body, database: Database) -> None:
    job_id = client.post("/v1/jobs", json=body(labels={"a": "1", "b": "2"}, notes="old")).json()["id"]
    to(database, job_id, State.CANCELLED)
    changed = client.patch(f"/v1/jobs/{job_id}", json={"labels": {"b": None, "c": "3"}, "notes": "new"}).json()
    assert (changed["labels"], changed["notes"]) == ({"a": "1", "c": "3"}, "new")
    found = [one["id"] for one in client.get("/v1/jobs", params={"label": "c:3"}).json()["data"]]
    assert found == [job_id]
    assert client.get("/v1/jobs", params={"label": "b:2"}).json()["data"] == []
    assert client.patch(f"/v1/jobs/{job_id}", json={"notes": None}).json()["notes"] is None
    assert "new" not in last_message(client, job_id)


def test_priority_and_time_limit_are_changed_while_it_waits(
    client: TestClient, job: dict[str, Any], database: Database, sent: Sent
) -> None:
    path = f"/v1/jobs/{job['id']}"
    changed = client.patch(path, json={"priority": 7, "time_limit_s": 60}).json()
    assert (changed["priority"], changed["time_limit_s"]) == (7, 60)
    assert last_message(client, job["id"]) == "Changed: priority is now 7, time_limit_s is now 60 (by test)"
    assert sent[-1] == ("trainyard.schedule", [])
    before = len(client.get(f"{path}/events").json()["data"])
    client.patch(path, json={"priority": 7})
    assert len(client.get(f"{path}/events").json()["data"]) == before, "nothing changed, nothing is said"
    run_it(database, job["id"])
    for change in ({"priority": 1}, {"time_limit_s": None}):
        error = error_of(client.patch(path, json=change), 409)
        assert (error["code"], error["param"]) == ("already_started", next(iter(change)))
    assert client.get(path).json()["priority"] == 7


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"priority": 2000}, "priority"),
        ({"priority": None}, "priority"),
        ({"time_limit_s": 0}, "time_limit_s"),
        ({"time_limit_s": True}, "time_limit_s"),
        ({"prioritty": 1}, "prioritty"),
        ({"labels": {"k": 5}}, "labels.k"),
        ({"labels": {f"k{n}": "v" for n in range(65)}}, "labels"),
        ({"state": "succeeded"}, "state"),
    ],
)
def test_a_bad_change_names_its_field(
    client: TestClient, job: dict[str, Any], change: dict[str, Any], param: str
) -> None:
    assert error_of(client.patch(f"/v1/jobs/{job['id']}", json=change), 422)["param"] == param
    assert client.get(f"/v1/jobs/{job['id']}").json() == job


# Retry and clone -----------------------------------------------------------------------------------------------------


def test_a_failed_job_is_retried_as_a_new_one_with_what_was_changed_since(
    client: TestClient, body: Body, database: Database, sent: Sent
) -> None:
    old = client.post("/v1/jobs", json=body(name="first", priority=3)).json()
    client.patch(f"/v1/jobs/{old['id']}", json={"priority": 5, "labels": {"a": "b"}})
    to(database, old["id"], State.FAILED)
    answer = client.post(f"/v1/jobs/{old['id']}/retry", headers={"Idempotency-Key": "r"})
    new = answer.json()
    assert (answer.status_code, new["state"], new["attempt"]) == (201, "validating", 0)
    assert new["id"] != old["id"]
    assert (new["name"], new["priority"], new["labels"]) == ("first", 5, {"a": "b"})
    assert answer.headers["location"] == f"/v1/jobs/{new['id']}"
    assert sent[-1] == ("trainyard.preflight", [new["id"]])
    assert last_message(client, new["id"]) == f"A retry of {old['id']}, from the start (by test)"
    again = client.post(f"/v1/jobs/{old['id']}/retry", headers={"Idempotency-Key": "r"})
    assert (again.status_code, again.json()["id"]) == (200, new["id"])


def test_a_retry_from_a_checkpoint_that_is_not_there_says_so(
    client: TestClient, job: dict[str, Any], database: Database
) -> None:
    to(database, job["id"], State.CANCELLED)
    error = error_of(client.post(f"/v1/jobs/{job['id']}/retry", json={"checkpoint": "last"}), 422)
    assert error["param"] == "continue_from.checkpoint"


@pytest.mark.parametrize("states", [[], [State.QUEUED, State.PAUSED]])
def test_only_what_failed_or_was_cancelled_is_retried(
    client: TestClient, job: dict[str, Any], database: Database, states: list[State]
) -> None:
    to(database, job["id"], *states)
    assert error_of(client.post(f"/v1/jobs/{job['id']}/retry"), 409)["code"] == "not_retryable"


def test_a_clone_takes_a_merge_patch(client: TestClient, body: Body) -> None:
    training = {"learning_rate": 1e-4, "max_steps": 10}
    old = client.post("/v1/jobs", json=body(name="old", training=training, notes="mine")).json()
    patch = {"name": "new", "training": {"learning_rate": 1e-5}, "notes": None}
    answer = client.post(f"/v1/jobs/{old['id']}/clone", json=patch)
    new = answer.json()
    assert answer.status_code == 201, answer.text
    assert (new["name"], new["notes"]) == ("new", None)
    assert new["training"] == {"learning_rate": 1e-5, "max_steps": 10}
    assert new["dataset"] == old["dataset"]
    assert last_message(client, new["id"]) == f"A clone of {old['id']}; changed: name, notes, training (by test)"
    assert client.post(f"/v1/jobs/{old['id']}/clone").json()["training"] == training


@pytest.mark.parametrize(
    ("patch", "param"),
    [
        ({"trainig": {}}, "trainig"),
        ({"training": {"lerning_rate": 1}}, "training.lerning_rate"),
        ({"dataset": None}, "dataset"),
        ({"dataset": {"train": 5}}, "dataset.train"),
        ({"parallel": {"n_processes": 0}}, "parallel.n_processes"),
    ],
)
def test_a_bad_clone_names_its_field(
    client: TestClient, job: dict[str, Any], patch: dict[str, Any], param: str
) -> None:
    error = error_of(client.post(f"/v1/jobs/{job['id']}/clone", json=patch), 422)
    assert param in [detail["param"] for detail in error["details"]] + [error["param"]]


# Dependencies --------------------------------------------------------------------------------------------------------


def test_a_job_waits_for_others_and_says_for_which(client: TestClient, body: Body, database: Database) -> None:
    first = client.post("/v1/jobs", json=body(name="first")).json()["id"]
    second = client.post("/v1/jobs", json=body(depends_on=[first])).json()
    assert second["depends_on"] == [first]
    to(database, second["id"], State.QUEUED)
    shown = client.get(f"/v1/jobs/{second['id']}").json()
    assert shown["waiting_reason"] == f"waits for {first} (first), which is validating"
    assert shown["queue_position"] is None
    listed = client.get("/v1/jobs", params={"state": "queued"}).json()["data"]
    assert listed[0]["waiting_reason"] == shown["waiting_reason"]


def test_what_a_job_cannot_wait_for_is_refused(
    client: TestClient, body: Body, job: dict[str, Any], database: Database
) -> None:
    to(database, job["id"], State.FAILED)
    unknown = "job_0000000000000000000000"
    asked = [job["id"], unknown, unknown, "../x"]
    error = error_of(client.post("/v1/jobs", json=body(depends_on=asked)), 422)
    found = {detail["param"]: detail["code"] for detail in error["details"]}
    assert found == {
        "depends_on[0]": "dependency_failed",
        "depends_on[1]": "not_found",
        "depends_on[2]": "duplicate",
        "depends_on[3]": "not_found",
    }


# Nodes ---------------------------------------------------------------------------------------------------------------


def node_of(client: TestClient, name: str) -> dict[str, Any]:
    return next(node for node in client.get("/v1/nodes").json()["data"] if node["name"] == name)


def test_a_drain_lets_the_run_finish_and_then_holds_the_node_empty(
    client: TestClient, job: dict[str, Any], database: Database, sent: Sent
) -> None:
    name, attempt_id = run_it(database, job["id"])
    n_sent = len(sent)
    answer = client.post(f"/v1/nodes/{name}/drain")
    assert (answer.status_code, answer.json()["state"], answer.json()["hold"]) == (200, "draining", "draining")
    assert len(sent) == n_sent, "the run is left alone"
    end(database, attempt_id, "succeeded")
    assert client.post(f"/v1/nodes/{name}/drain").json()["state"] == "cordoned"
    answer = client.post(f"/v1/nodes/{name}/uncordon")
    assert (answer.json()["state"], answer.json()["hold"]) == ("ready", None)


def test_a_drain_may_ask_the_runs_to_leave(
    client: TestClient, job: dict[str, Any], database: Database, sent: Sent
) -> None:
    name, attempt_id = run_it(database, job["id"])
    assert client.post(f"/v1/nodes/{name}/drain", params={"stop": True}).json()["state"] == "draining"
    assert sent[-1] == ("trainyard.stop", [attempt_id])
    assert client.get(f"/v1/jobs/{job['id']}").json()["state"] == "running"
    assert f"{name} is drained (by test)" in last_message(client, job["id"])
    end(database, attempt_id)
    assert client.get(f"/v1/jobs/{job['id']}").json()["state"] == "queued"


def test_a_placement_not_yet_launched_leaves_at_once(
    client: TestClient, job: dict[str, Any], database: Database
) -> None:
    name, _attempt_id = run_it(database, job["id"], started=False)
    assert client.post(f"/v1/nodes/{name}/drain", params={"stop": True}).json()["state"] == "cordoned"
    assert client.get(f"/v1/jobs/{job['id']}").json()["state"] == "queued"


def test_a_cordoned_node_keeps_its_runs(client: TestClient, job: dict[str, Any], database: Database) -> None:
    name, _attempt_id = run_it(database, job["id"])
    node = client.post(f"/v1/nodes/{name}/cordon").json()
    assert (node["state"], node["devices"][0]["job_id"]) == ("cordoned", job["id"])
    assert node_of(client, name) == node
    assert client.post(f"/v1/nodes/{node['id']}/uncordon").json()["state"] == "ready"


@pytest.mark.parametrize("verb", ["drain", "cordon", "uncordon"])
def test_a_node_that_is_not_there_is_not_found(client: TestClient, verb: str) -> None:
    error_of(client.post(f"/v1/nodes/nowhere/{verb}"), 404)
