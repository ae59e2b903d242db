"""A whole service in this process: its database has a model and datasets, its queue is a list of what was sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from api.app import create_app
from api.core import queue
from api.core.auth import add_key
from api.core.db import Database
from api.core.ids import new_id
from api.core.settings import Settings
from api.core.tables import BaseModel, Dataset
from trainer_core.data.report import DatasetReport

KEY = "ty-" + "k" * 40
AUTH = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", min_free_disk_bytes=0)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Every nudge that would have gone to the broker, in order."""
    nudges: list[tuple[str, Any]] = []

    def send(_settings: Settings | None, task: str, args: list[Any], _queue: str) -> bool:
        nudges.append((task, args))
        return True

    monkeypatch.setattr(queue, "_send", send)
    return nudges


@pytest.fixture
def app(settings: Settings, database: Database, sent: list[Any]) -> FastAPI:
    with database.session() as session:
        add_key(session, "test", key=KEY)
        session.add(BaseModel(id=new_id("model"), name="tiny", source="/models/tiny", details={}))
    return create_app(settings, database=database, tick_s=0.02)


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, headers=AUTH) as client:
        yield client


@pytest.fixture
def dataset(database: Database) -> Callable[..., str]:
    """Make a dataset's row (its file is not looked at when a job is submitted); returns its id."""

    def make(
        n_rows: int = 100,
        name: str = "rows.jsonl",
        format: Any = "prompt_completion",
        columns: tuple[str, ...] = ("prompt", "completion"),
        sha256: str = "0" * 64,
    ) -> str:
        report = DatasetReport(
            format=format,
            n_rows=n_rows,
            columns={column: ["string"] for column in columns},
            size_bytes=10,
            sha256=sha256,
        )
        row = Dataset(
            id=new_id("ds"),
            name=name,
            format=None if format == "columns" else format,
            n_rows=n_rows,
            size_bytes=10,
            sha256=sha256,
            storage_key="datasets/x/rows.jsonl",
            report=report.model_dump(mode="json"),
            created_by="test",
        )
        with database.session() as session:
            session.add(row)
        return row.id

    return make


@pytest.fixture
def body(dataset: Callable[..., str]) -> Callable[..., dict[str, Any]]:
    """A body that is accepted: 100 rows, and what is changed in it."""
    train = dataset()

    def make(**changes: Any) -> dict[str, Any]:
        return {"model": "tiny", "dataset": {"train": train}, **changes}

    return make


@pytest.fixture
def job(client: TestClient, body: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    answer = client.post("/v1/jobs", json=body())
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


@pytest.fixture
def sweep_body(body: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    def make(**changes: Any) -> dict[str, Any]:
        job = body(training={"max_steps": 27, "eval_steps": 3, "save_steps": 9})
        job["dataset"]["eval_fraction"] = 0.1
        return {
            "name": "rates",
            "job": job,
            "parameters": {"training.learning_rate": {"values": [1e-4, 2e-4, 3e-4, 4e-4]}},
            "search": "grid",
            "objective": {"metric": "eval_loss"},
            **changes,
        }

    return make


@pytest.fixture
def submit(client: TestClient, sweep_body: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    def make(**changes: Any) -> dict[str, Any]:
        answer = client.post("/v1/sweeps", json=sweep_body(**changes))
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    return make


def error_of(answer: Any, status: int) -> dict[str, Any]:
    """The error of an answer, which must have this status and the one shape."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"code", "message", "param", "details"}
    assert isinstance(error["message"], str)
    assert error["message"]
    return error
