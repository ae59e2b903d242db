"""A whole service in this process for the tests of files: uploads, checkpoints, artifacts."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.testclient import TestClient

from api.app import create_app
from api.core.auth import add_key
from api.core.db import Database
from api.core.ids import new_id
from api.core.settings import Settings
from api.core.states import State
from api.core.storage import LocalStorage, Storage
from api.core.tables import Artifact, Checkpoint, Job
from trainer_core.contract import MANIFEST_NAME, Manifest, ManifestFile

KEY = "ty-" + "k" * 40
AUTH = {"Authorization": f"Bearer {KEY}"}
OK3 = [
    {"messages": [{"role": "user", "content": f"question {n}"}, {"role": "assistant", "content": f"answer {n}"}]}
    for n in range(3)
]


def jsonl(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def error_of(response: Any, status: int = 422) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert len(response.text) < 20_000
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"code", "message", "param", "details"}
    return error


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", min_free_disk_bytes=0)


@pytest.fixture
def storage(settings: Settings) -> Storage:
    return LocalStorage(settings.storage_dir)


@pytest.fixture
def app(settings: Settings, database: Database, storage: Storage) -> FastAPI:
    with database.session() as session:
        add_key(session, "test", key=KEY)
    return create_app(settings, database=database, storage=storage)


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, headers=AUTH) as client:
        yield client


@pytest.fixture
def live(app: FastAPI) -> Iterator[str]:
    """The service behind a real socket; its URL."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def upload(client: TestClient) -> Callable[..., Any]:
    """Send a file as a form; the answer."""

    def send(content: bytes, name: str = "x.jsonl") -> Any:
        return client.post("/v1/datasets", files={"file": (name, content)})

    return send


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


@pytest.fixture
def nothing_left(settings: Settings, client: TestClient) -> Callable[[], None]:
    """Assert that no upload is on disk or listed."""

    def check() -> None:
        assert files_below(settings.storage_dir) == set()
        assert not settings.incoming_dir.exists() or list(settings.incoming_dir.iterdir()) == []
        assert client.get("/v1/datasets").json() == {"data": [], "has_more": False, "next": None}

    return check


@pytest.fixture
def job_id(database: Database) -> str:
    return make_job(database)


def make_job(database: Database, state: State = State.SUCCEEDED, name: str = "../x 报告", train: str = "") -> str:
    job = Job(
        id=new_id("job"),
        name=name,
        state=state,
        method="sft",
        model_name="tiny",
        spec={},
        resolved={"data": {"train": {"id": train}, "eval": None}},
        created_by="test",
    )
    with database.session() as session:
        session.add(job)
    return job.id


def make_checkpoint(
    database: Database,
    storage: Storage,
    job_id: str,
    step: int,
    files: dict[str, bytes],
    *,
    attempt: int = 1,
    **facts: Any,
) -> Manifest:
    """A checkpoint of these files, stored and listed as the worker does it; `facts` go into its manifest."""
    assert isinstance(storage, LocalStorage)
    listed = [
        ManifestFile(path=path, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
        for path, content in files.items()
    ]
    manifest = Manifest(
        job_id=job_id,
        attempt=attempt,
        step=step,
        world_size=1,
        strategy="ddp",
        total_steps=100,
        files=listed,
        metrics={"loss": 0.5, "eval_loss": "NaN"},
        **facts,
    )
    text = manifest.model_dump_json().encode()
    prefix = f"jobs/{job_id}/checkpoints/{step}/attempt-{attempt}"
    for path, content in {**files, MANIFEST_NAME: text}.items():
        put(storage, f"{prefix}/{path}", content)
    row = Checkpoint(
        id=new_id("ckpt"),
        job_id=job_id,
        attempt=attempt,
        step=step,
        storage_prefix=prefix,
        manifest=manifest.model_dump(mode="json"),
        manifest_sha256=hashlib.sha256(text).hexdigest(),
        size_bytes=manifest.size_bytes,
        metrics=dict(manifest.metrics),
    )
    with database.session() as session:
        session.add(row)
    return manifest


def make_artifact(database: Database, storage: Storage, job_id: str, path: str, content: bytes) -> None:
    assert isinstance(storage, LocalStorage)
    key = f"jobs/{job_id}/artifacts/attempt-1/{path}"
    put(storage, key, content)
    row = Artifact(
        job_id=job_id,
        path=path,
        storage_key=key,
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    with database.session() as session:
        session.add(row)


def put(storage: LocalStorage, key: str, content: bytes) -> None:
    draft = storage.root.parent / "draft"
    draft.write_bytes(content)
    storage.put(key, draft)
    draft.unlink()


def set_best(database: Database, job_id: str, step: int | None) -> None:
    with database.session() as session:
        job = session.get_one(Job, job_id)
        job.best_step = step
