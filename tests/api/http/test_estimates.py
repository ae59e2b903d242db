"""POST /v1/estimates and strategy auto over HTTP: nothing is made, numbers are those of the job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update
from starlette.testclient import TestClient

from api.core import nodes
from api.core.db import Database
from api.core.ids import new_id
from api.core.nodes import DeviceFact
from api.core.tables import BaseModel, Event, Job, MetricRow
from tests.api.http.conftest import error_of
from tests.trainer_core.test_strategies import LLAMA

GIB = 1024**3
Body = Callable[..., dict[str, Any]]


@pytest.fixture
def big(database: Database, tmp_path: Path) -> str:
    """A registered model of 8 billion parameters, of which only the config is there."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    with database.session() as session:
        session.add(BaseModel(id=new_id("model"), name="big", source=str(tmp_path), details={}))
    return "big"


def add_node(database: Database, kind: Any, n: int, memory: int | None, host: int = 64 * GIB) -> None:
    found = [DeviceFact(index=index, kind=kind, name="device", memory_bytes=memory) for index in range(n)]
    with database.session() as session:
        nodes.register(session, f"n{new_id('x')}", found, {"memory_bytes": host}, {})


def estimate(client: TestClient, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post("/v1/estimates", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_nothing_is_made(client: TestClient, database: Database, body: Body, sent: list[Any]) -> None:
    estimate(client, body())
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(Job)) == 0
        assert session.scalar(select(func.count()).select_from(Event)) == 0
    assert sent == []


def test_a_body_at_fault_is_refused_as_a_job_would_be(client: TestClient, body: Body) -> None:
    wrong = body(training={"lerning_rate": 1})
    assert error_of(client.post("/v1/estimates", json=wrong), 422) == error_of(client.post("/v1/jobs", json=wrong), 422)


def test_every_strategy_is_told_by_component(client: TestClient, body: Body, big: str, database: Database) -> None:
    add_node(database, "cuda", 8, 80 * GIB)
    found = estimate(client, body(model=big, parallel={"n_processes": 8}, training={"bf16": True}))
    told = [(one["strategy"], one["zero_stage"], one["offload"]) for one in found["strategies"]]
    assert told[0] == ("ddp", None, "none")
    assert ("deepspeed", 3, "all") in told
    for one in found["strategies"]:
        parts = [size for name, size in one["memory"].items() if name not in ("device_bytes", "host_bytes")]
        assert sum(parts) == one["memory"]["device_bytes"]
    assert found["n_parameters"] == 8_030_261_248
    assert found["chosen"]["fits"] is True
    assert found["parallel"]["strategy"] == "deepspeed"
    assert next(one for one in found["strategies"] if one["fits"]) == found["chosen"]


def test_the_job_runs_with_what_was_estimated(client: TestClient, body: Body, big: str, database: Database) -> None:
    add_node(database, "cuda", 4, 80 * GIB, host=2000 * GIB)
    wanted = body(model=big, parallel={"n_processes": 4}, training={"bf16": True})
    found, job = estimate(client, wanted), client.post("/v1/jobs", json=wanted).json()
    assert job["resolved"]["parallel"] == found["parallel"]
    assert job["resolved"]["estimate"]["chosen"] == found["chosen"]
    assert job["parallel"]["strategy"] == "auto"
    assert job["resolved"]["deepspeed"]["zero_optimization"]["stage"] == found["chosen"]["zero_stage"]
    assert any("parallel.strategy auto is ZeRO-" in note for note in job["resolved"]["notes"])


def test_what_fits_nowhere_is_refused_with_its_numbers(
    client: TestClient, body: Body, big: str, database: Database
) -> None:
    add_node(database, "cuda", 1, 8 * GIB, host=16 * GIB)
    error = error_of(client.post("/v1/jobs", json=body(model=big)), 422)
    assert (error["param"], error["code"]) == ("parallel.strategy", "out_of_range")
    assert "8.0 GiB" in error["message"]
    found = estimate(client, body(model=big))
    assert {one["fits"] for one in found["strategies"]} == {False}
    named = client.post("/v1/jobs", json=body(model=big, parallel={"strategy": "ddp"}))
    assert named.status_code == 201
    assert any("may run out of memory" in note for note in named.json()["resolved"]["notes"])


def test_cpu_slots_share_their_host_and_never_refuse(
    client: TestClient, body: Body, big: str, database: Database
) -> None:
    add_node(database, "cpu", 2, None, host=16 * GIB)
    job = client.post("/v1/jobs", json=body(model=big))
    assert job.status_code == 201, job.text
    assert job.json()["resolved"]["estimate"]["device_memory_bytes"] == 8 * GIB
    assert any("may run out of it" in note for note in job.json()["resolved"]["notes"])


def test_of_a_model_of_unknown_size_the_steps_are_told(client: TestClient, body: Body) -> None:
    found = estimate(client, body())
    assert (found["n_parameters"], found["chosen"], found["strategies"]) == (None, None, [])
    assert found["planned_steps"] == client.post("/v1/jobs", json=body()).json()["planned_steps"]
    assert any("size is not known" in note for note in found["notes"])


def test_tokens_and_time_come_of_similar_runs(client: TestClient, body: Body, database: Database) -> None:
    before = estimate(client, body())
    assert (before["tokens"]["counted_by_job"], before["time"]) == (None, None)
    job_id = client.post("/v1/jobs", json=body()).json()["id"]
    with database.session() as session:
        done = {"state": "succeeded", "preflight": {"ok": True, "total_tokens": 5000}}
        session.execute(update(Job).where(Job.id == job_id).values(**done))
        for n, pace in enumerate([1.0, 100.0, 120.0, "NaN", 110.0], 1):
            values = {"loss": 1.0, "tokens_per_second": pace}
            row = {"n": n, "seq": n, "step": n, "kind": "train", "attempt": 1, "values": values}
            session.add(MetricRow(job_id=job_id, at=session.get_one(Job, job_id).created_at, epoch=None, **row))
    after = estimate(client, body(training={"num_train_epochs": 2}))
    assert after["tokens"] == {"per_epoch": 5000, "total": 10_000, "counted_by_job": job_id}
    # The median of 1, 100, 110 and 120.
    assert after["time"] == {"seconds": 10_000 / 105, "tokens_per_second": 105.0, "job_id": job_id, "n_processes": 1}
    doubled = estimate(client, body(parallel={"n_processes": 2}))
    assert doubled["time"]["tokens_per_second"] == 210.0
    other = estimate(client, body(adapter={"type": "lora"}))
    assert other["time"] is None
