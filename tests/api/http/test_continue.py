"""Continuing an earlier job: what a full continuation needs to be equal, and that weights alone are always offered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select
from starlette.testclient import TestClient

from api.core.db import Database
from api.core.ids import new_id
from api.core.tables import Checkpoint, Job
from tests.api.http.conftest import error_of
from trainer_core.contract import Manifest

Body = Callable[..., dict[str, Any]]
OPTIONS = {"max_steps": 10, "learning_rate": 1e-4, "lr_scheduler_type": "linear"}


def save(database: Database, job_id: str, step: int, **changes: Any) -> None:
    """A checkpoint's row, saved as the job's own resolved form says."""
    with database.session() as session:
        job = session.get_one(Job, job_id)
        parallel = job.resolved["parallel"]
        facts: dict[str, Any] = {
            "world_size": parallel["n_processes"],
            "strategy": parallel["strategy"],
            "zero_stage": parallel["zero_stage"],
            "total_steps": job.planned_steps,
        }
        manifest = Manifest(job_id=job_id, attempt=1, step=step, files=[], **{**facts, **changes})
        row = Checkpoint(
            id=new_id("ckpt"),
            job_id=job_id,
            attempt=1,
            step=step,
            storage_prefix=f"x/{step}",
            manifest=manifest.model_dump(mode="json"),
            manifest_sha256="1" * 64,
            size_bytes=0,
        )
        session.add(row)


@pytest.fixture
def earlier(client: TestClient, body: Body, database: Database) -> dict[str, Any]:
    """The body of an earlier job that has checkpoints at steps 4 (best) and 5 of 10."""
    sent = body(training=dict(OPTIONS))
    job_id = client.post("/v1/jobs", json=sent).json()["id"]
    for step in (4, 5):
        save(database, job_id, step)
    with database.session() as session:
        session.get_one(Job, job_id).best_step = 4
    return sent | {"continue_from": {"job": job_id, "checkpoint": "last"}}


def changed(sent: dict[str, Any], **options: Any) -> dict[str, Any]:
    return sent | {"training": sent["training"] | options}


def weights(sent: dict[str, Any]) -> dict[str, Any]:
    return sent | {"continue_from": sent["continue_from"] | {"mode": "weights"}}


@pytest.mark.parametrize(("checkpoint", "step"), [("last", 5), ("best", 4), (4, 4), ("5", 5)])
def test_the_same_job_goes_on_from_best_last_or_a_step(
    client: TestClient, earlier: dict[str, Any], checkpoint: Any, step: int
) -> None:
    sent = earlier | {"continue_from": earlier["continue_from"] | {"checkpoint": checkpoint}}
    answer = client.post("/v1/jobs", json=sent)
    assert answer.status_code == 201, answer.text
    start = answer.json()["resolved"]["start"]
    assert (start["step"], start["mode"], start["manifest_sha256"]) == (step, "full", "1" * 64)


def test_a_checkpoint_that_is_not_there_is_named_with_those_that_are(
    client: TestClient, earlier: dict[str, Any]
) -> None:
    sent = earlier | {"continue_from": earlier["continue_from"] | {"checkpoint": 7}}
    error = error_of(client.post("/v1/jobs", json=sent), 422)
    assert error["param"] == "continue_from.checkpoint"
    assert "4, 5" in error["message"]
    sent = earlier | {"continue_from": {"job": "job_0000000000000000000000"}}
    assert error_of(client.post("/v1/jobs", json=sent), 422)["param"] == "continue_from.job"


@pytest.mark.parametrize("checkpoint", ["newest", 0, -1, 1.5, True, None])
def test_what_names_no_checkpoint_is_refused(client: TestClient, earlier: dict[str, Any], checkpoint: Any) -> None:
    sent = earlier | {"continue_from": earlier["continue_from"] | {"checkpoint": checkpoint}}
    assert error_of(client.post("/v1/jobs", json=sent), 422)["param"] == "continue_from.checkpoint"


def test_a_longer_plan_under_a_schedule_of_the_total_is_refused(client: TestClient, earlier: dict[str, Any]) -> None:
    longer = changed(earlier, max_steps=20)
    error = error_of(client.post("/v1/jobs", json=longer), 422)
    assert (error["code"], error["param"]) == ("schedule_changed", "training.lr_scheduler_type")
    assert "weights" in error["details"][0]["hint"]
    assert client.post("/v1/jobs", json=weights(longer)).status_code == 201


def test_a_longer_plan_under_a_constant_rate_goes_on(client: TestClient, body: Body, database: Database) -> None:
    sent = body(training={**OPTIONS, "lr_scheduler_type": "constant"})
    job_id = client.post("/v1/jobs", json=sent).json()["id"]
    save(database, job_id, 10)
    longer = changed(sent, max_steps=14) | {"continue_from": {"job": job_id}}
    answer = client.post("/v1/jobs", json=longer)
    assert answer.status_code == 201, answer.text
    assert answer.json()["planned_steps"] == 14


@pytest.mark.parametrize("max_steps", [5, 4])
def test_a_plan_that_is_done_already_is_refused(client: TestClient, earlier: dict[str, Any], max_steps: int) -> None:
    error = error_of(client.post("/v1/jobs", json=changed(earlier, max_steps=max_steps)), 422)
    assert (error["code"], error["param"]) == ("no_steps", "training.max_steps")


def test_another_number_of_processes_is_refused_and_weights_are_offered(
    client: TestClient, earlier: dict[str, Any], database: Database
) -> None:
    with database.session() as session:
        for row in session.scalars(select(Checkpoint)):
            row.manifest = {**row.manifest, "world_size": 2}
    error = error_of(client.post("/v1/jobs", json=earlier), 422)
    assert (error["code"], error["param"]) == ("world_size_mismatch", "parallel.n_processes")
    assert "weights" in error["details"][0]["hint"]
    assert client.post("/v1/jobs", json=weights(earlier)).status_code == 201


def test_other_rows_batch_or_adapter_are_refused(
    client: TestClient, earlier: dict[str, Any], dataset: Callable[..., str]
) -> None:
    other = dataset(name="other.jsonl", sha256="f" * 64)
    cases = {
        "dataset.train": earlier | {"dataset": {"train": other}},
        "dataset.max_length": earlier | {"dataset": earlier["dataset"] | {"max_length": 99}},
        "training.per_device_train_batch_size": changed(earlier, per_device_train_batch_size=2),
        "adapter": earlier | {"adapter": {"type": "lora"}},
        "parallel.strategy": earlier | {"parallel": {"strategy": "deepspeed"}},
    }
    for param, sent in cases.items():
        error = error_of(client.post("/v1/jobs", json=sent), 422)
        assert param in {fault["param"] for fault in error["details"]}, (param, error)
