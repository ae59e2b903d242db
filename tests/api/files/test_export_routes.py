"""Exports over HTTP: asked for, listed, downloaded, taken away; what is not on the list is not there."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.core import exports
from api.core.db import Database
from api.core.storage import Storage
from tests.api.files.conftest import error_of, make_checkpoint, make_job, put
from trainer_core.contract import ManifestFile

CONTENT = {"config.json": b'{"a": 1}', "model-00001-of-00002.safetensors": b"one", "README.md": b"# card"}


@pytest.fixture
def base(database: Database, storage: Storage, job_id: str) -> str:
    make_checkpoint(database, storage, job_id, 10, {"x": b"x"}, adapter="lora")
    return f"/v1/jobs/{job_id}/exports"


@pytest.fixture
def ready(client: TestClient, base: str, database: Database, storage: Storage) -> Callable[[], str]:
    """Address of an export that has succeeded."""

    def make() -> str:
        made = client.post(base, json={"kind": "merged", "checkpoint": "last"}).json()
        with database.session() as session:
            row = exports.claim(session, "w", 60.0)
            assert row is not None
            listed = []
            for path, content in CONTENT.items():
                put(storage, f"jobs/x/{path}", content)  # type: ignore[arg-type]
                sha256 = hashlib.sha256(content).hexdigest()
                listed.append(ManifestFile(path=path, size_bytes=len(content), sha256=sha256))
            exports.succeed(session, row, "w", listed, {}, "jobs/x")
        return f"{base}/{made['id']}"

    return make


def test_it_is_made_and_listed_newest_first(client: TestClient, base: str) -> None:
    first = client.post(base, json={"kind": "adapter", "checkpoint": 10})
    assert first.status_code == 201
    assert first.headers["location"] == f"{base}/{first.json()['id']}"
    second = client.post(base, json={"kind": "merged", "checkpoint": "last", "max_shard_size": "500MB"})
    listed = client.get(base).json()["data"]
    assert [one["id"] for one in listed] == [second.json()["id"], first.json()["id"]]
    assert client.get(first.headers["location"]).json() == first.json()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "kind"),
        ({"kind": "gguf"}, "kind"),
        ({"kind": "full", "checkpoint": 10}, "kind"),
        ({"kind": "merged", "dtype": "int4"}, "dtype"),
        ({"kind": "merged", "max_shard_size": "5"}, "max_shard_size"),
        ({"kind": "merged", "max_shard_size": "5 GB; rm"}, "max_shard_size"),
        ({"kind": "merged", "chekpoint": 1}, "chekpoint"),
        ({"kind": "merged", "checkpoint": True}, "checkpoint"),
    ],
)
def test_bodies_at_fault_name_the_field(client: TestClient, base: str, body: Any, param: str) -> None:
    assert str(error_of(client.post(base, json=body))["param"]).startswith(param)


def test_without_the_checkpoint_or_job_it_is_not_found(client: TestClient, base: str) -> None:
    error_of(client.post(base, json={"kind": "merged", "checkpoint": 11}), 404)
    error_of(client.post("/v1/jobs/job_x/exports", json={"kind": "merged"}), 404)
    error_of(client.get(f"{base}/exp_x"), 404)


def test_files_and_archives_are_whole(client: TestClient, ready: Callable[[], str]) -> None:
    where = ready()
    for path, content in CONTENT.items():
        answer = client.get(f"{where}/files/{path}")
        assert answer.content == content
        assert answer.headers["etag"] == f'"{hashlib.sha256(content).hexdigest()}"'
    assert client.get(f"{where}/files/config.json", headers={"Range": "bytes=1-3"}).content == b'"a"'
    answer = client.get(f"{where}/archive")
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        found = {name.removeprefix("step-10-merged/"): tar.extractfile(name) for name in tar.getnames()}
        assert {name: file.read() for name, file in found.items() if file} == CONTENT
    assert client.head(f"{where}/archive").headers["content-length"] == str(len(answer.content))
    assert client.get(f"{where}/archive?format=zip").content[:2] == b"PK"


@pytest.mark.parametrize("path", ["../x/config.json", "%2e%2e/config.json", "nothing", "config.json/"])
def test_a_path_off_the_list_is_not_there(client: TestClient, ready: Callable[[], str], path: str) -> None:
    assert client.get(f"{ready()}/files/{path}").status_code == 404


def test_an_unfinished_one_has_no_files(client: TestClient, base: str) -> None:
    made = client.post(base, json={"kind": "adapter", "checkpoint": 10}).json()
    error_of(client.get(f"{base}/{made['id']}/archive"), 404)
    error_of(client.get(f"{base}/{made['id']}/files/config.json"), 404)


def test_another_jobs_export_is_not_found(client: TestClient, ready: Callable[[], str], database: Database) -> None:
    other = make_job(database)
    export_id = ready().rpartition("/")[2]
    error_of(client.get(f"/v1/jobs/{other}/exports/{export_id}/files/config.json"), 404)
    error_of(client.post(f"/v1/jobs/{other}/exports/{export_id}/cancel"), 404)


def test_cancel_and_delete(client: TestClient, base: str, ready: Callable[[], str], storage: Storage) -> None:
    made = client.post(base, json={"kind": "adapter", "checkpoint": 10}).json()
    error_of(client.delete(f"{base}/{made['id']}"), 409)
    assert client.post(f"{base}/{made['id']}/cancel").json()["state"] == "cancelled"
    where = ready()
    error_of(client.post(f"{where}/cancel"), 409)
    assert client.delete(where).status_code == 204
    error_of(client.get(where), 404)
