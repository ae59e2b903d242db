"""Numbers, names and plans as people write them: one rule each, settled when a job is sent, in a bounded answer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.api.http.conftest import AUTH, error_of

Body = Callable[..., dict[str, Any]]
Datasets = Callable[..., str]


def send(client: TestClient, job: dict[str, Any]) -> Any:
    """As it stands: the client's own JSON would stop at half a surrogate pair and at NaN."""
    return client.post("/v1/jobs", content=json.dumps(job), headers={"Content-Type": "application/json"})


@pytest.mark.parametrize(
    "rate", ["1_000", "１e-4", "0x10", " 1e-4 ", "1e-4\n", "1,5", "1/3", "1d-4", "1e", "٣", "", "inf"]
)
def test_text_that_only_some_readers_call_a_number_is_refused(client: TestClient, body: Body, rate: str) -> None:
    error = error_of(send(client, body(training={"learning_rate": rate})), 422)
    assert (error["code"], error["param"]) == ("invalid_value", "training.learning_rate")
    assert client.get("/v1/jobs").json()["data"] == []


@pytest.mark.parametrize("rate", ["-0", "1e-400", "1e5", 1e300])
def test_a_rate_that_cannot_train_is_out_of_range(client: TestClient, body: Body, rate: object) -> None:
    error = error_of(send(client, body(training={"learning_rate": rate})), 422)
    assert (error["code"], error["param"]) == ("out_of_range", "training.learning_rate")


@pytest.mark.parametrize(("rate", "kept"), [("+1e-4", 1e-4), ("1E-4", 1e-4), (".5", 0.5), ("5.", 5.0)])
def test_a_number_in_text_is_kept_as_the_number_used(client: TestClient, body: Body, rate: str, kept: float) -> None:
    job = send(client, body(training={"learning_rate": rate})).json()
    assert job["resolved"]["training"]["learning_rate"] == kept


@pytest.mark.parametrize("batch", ["1e3", "1e0", "1_0", "0b1", 2.0, 2.5, True, 2**63, 10**30])
def test_a_batch_is_a_whole_number_in_digits(client: TestClient, body: Body, batch: object) -> None:
    error = error_of(send(client, body(training={"per_device_train_batch_size": batch})), 422)
    assert (error["code"], error["param"]) == ("invalid_value", "training.per_device_train_batch_size")


@pytest.mark.parametrize(
    ("part", "param", "near"),
    [
        ({"training": {"LEARNING_RATE": 1}}, "training.LEARNING_RATE", "learning_rate"),
        ({"training": {"learning-rate": 1}}, "training.learning-rate", "learning_rate"),
        ({"training": {"learning_rate ": 1}}, "training.learning_rate ", "learning_rate"),
        ({"dataset": {"evalfraction": 0.1}}, "dataset.evalfraction", "eval_fraction"),
        ({"parallel": {"n_proceses": 2}}, "parallel.n_proceses", "n_processes"),
        (
            {"parallel": {"deepspeed": {"zero_optimization": {"stage": 2, "offload_optimizer": {"devise": "cpu"}}}}},
            "parallel.deepspeed.zero_optimization.offload_optimizer.devise",
            "device",
        ),
    ],
)
def test_a_misspelt_key_is_refused_however_deep(
    client: TestClient, body: Body, part: dict[str, Any], param: str, near: str
) -> None:
    job = body(**part)
    if "dataset" in part:
        job["dataset"] |= body()["dataset"]
    error = error_of(send(client, job), 422)
    assert (error["code"], error["param"]) == ("unknown_key", param)
    assert f"`{near}`" in error["details"][0]["hint"]


@pytest.mark.parametrize(
    ("n_rows", "data", "training", "n_processes"),
    [
        (3, {}, {"per_device_train_batch_size": 4}, 1),
        (7, {}, {"per_device_train_batch_size": 4}, 2),
        (4, {"eval_fraction": 0.5}, {"per_device_train_batch_size": 4}, 1),
        (1, {}, {"per_device_train_batch_size": 1}, 8),
    ],
    ids=["less-than-a-batch", "less-than-all-processes-batch", "rows-held-out", "fewer-rows-than-processes"],
)
def test_a_plan_that_drops_every_row_is_refused_with_its_numbers(
    client: TestClient,
    dataset: Datasets,
    n_rows: int,
    data: dict[str, Any],
    training: dict[str, Any],
    n_processes: int,
) -> None:
    job = {
        "model": "tiny",
        "dataset": {"train": dataset(n_rows)} | data,
        "training": {"dataloader_drop_last": True, "num_train_epochs": 1} | training,
        "parallel": {"n_processes": n_processes},
    }
    error = error_of(send(client, job), 422)
    assert (error["code"], error["param"]) == ("no_steps", "training.dataloader_drop_last")
    assert str(training["per_device_train_batch_size"] * n_processes) in error["message"]


def test_a_run_whose_only_step_learns_nothing_says_so(client: TestClient, body: Body) -> None:
    job = send(client, body(training={"num_train_epochs": 0.001, "warmup_steps": 0.5})).json()
    assert job["planned_steps"] == 1
    assert any("rate 0" in note for note in job["resolved"]["notes"]), job["resolved"]["notes"]


@pytest.mark.parametrize(
    "part",
    [
        {"training": {"k" * 1_000_000: 1}},
        {"training": {f"key{n}": 1 for n in range(4_000)}},
        {"labels": {f"key{n}": 1 for n in range(4_000)}},
        {"parallel": {"deepspeed": {f"key{n}": 1 for n in range(4_000)}}},
        {"labels": {"k" * 1_000_000: "v"}},
        {"name": "n" * 1_000_000},
        {"model": "m" * 1_000_000},
    ],
    ids=["long-key", "many-keys", "many-labels", "many-deepspeed-keys", "long-label", "long-name", "long-model"],
)
def test_a_refusal_is_short_whatever_was_sent(client: TestClient, body: Body, part: dict[str, Any]) -> None:
    answer = send(client, body(**part))
    error = error_of(answer, 422)
    assert len(answer.content) < 100_000
    assert len(error["details"]) <= 100
    if len(part.popitem()[1]) == 4_000:
        assert "4000 faults in all" in error["message"]


@pytest.mark.parametrize("name", ["training", "labels", "columns"])
def test_a_body_of_very_many_keys_is_refused_unread(client: TestClient, body: Body, name: str) -> None:
    """The nearest valid name is looked for at every one of them."""
    many = {f"lerning_rate{n}": "x" for n in range(100_000)}
    job = body(**{name: many}) if name != "columns" else body(dataset={"train": "x", "columns": many})
    began_at = time.monotonic()
    error = error_of(send(client, job), 400)
    assert error["code"] == "json_invalid"
    assert "5000 keys" in error["message"]
    assert time.monotonic() - began_at < 3


def test_different_bodies_under_one_key_at_the_same_moment_make_one_job(client: TestClient, body: Body) -> None:
    bodies = [body(name="first"), body(name="second")]
    answers: list[tuple[int, str]] = []

    def post(n: int) -> None:
        answer = client.post("/v1/jobs", json=bodies[n % 2], headers=AUTH | {"Idempotency-Key": "raced"})
        answers.append((answer.status_code, answer.json().get("id") or answer.json()["error"]["code"]))

    threads = [threading.Thread(target=post, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    jobs = client.get("/v1/jobs").json()["data"]
    assert len(jobs) == 1
    assert sorted(answers) == sorted(
        [(201, jobs[0]["id"])] + [(200, jobs[0]["id"])] * 3 + [(422, "idempotency_key_reused")] * 4
    )


HOSTILE = "</script><img src=x onerror=alert(1)>{{7*7}}%s'\"; DROP TABLE jobs;-- \u2028 报告 🚀"


def test_hostile_text_is_kept_as_text(client: TestClient, body: Body) -> None:
    made = client.post("/v1/jobs", json=body(notes=HOSTILE, labels={"team": HOSTILE.replace("\u2028", "")})).json()
    shown = client.get(f"/v1/jobs/{made['id']}").json()
    assert shown["notes"] == HOSTILE
    assert (
        client.get("/v1/jobs", params={"label": f"team:{shown['labels']['team']}"}).json()["data"][0]["id"]
        == made["id"]
    )
    assert client.get("/v1/jobs", params={"name": "%' OR 1=1 --"}).json()["data"] == []


@pytest.mark.parametrize(
    "part",
    [
        {"name": "a\r\nX-Evil: 1"},
        {"name": "a\u2028b"},
        {"labels": {"a\nb": "c"}},
        {"labels": {"a": "\x1b[31mc"}},
        {"name": "a\0"},
    ],
)
def test_text_that_breaks_a_line_or_commands_a_terminal_is_refused(
    client: TestClient, body: Body, part: dict[str, Any]
) -> None:
    assert error_of(send(client, body(**part)), 422)["code"] == "invalid_value"
