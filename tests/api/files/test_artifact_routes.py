"""Artifacts over HTTP: listed while the job runs, never scripting a page, nothing outside the rows."""

from __future__ import annotations

import hashlib

import pytest
from starlette.testclient import TestClient

from api.core.db import Database
from api.core.ids import new_id
from api.core.states import State
from api.core.storage import LocalStorage, Storage
from tests.api.files.conftest import make_artifact, make_job

FILES = {
    "README.md": b"# card",
    "all_results.json": b"{}",
    "page.html": b"<script>alert(1)</script>",
    "plot.svg": b"<svg onload='alert(1)'/>",
    "training_loss.png": b"\x89PNG",
    "training_args.bin": b"\x80",
    "报告/état.txt": "é".encode(),
}


@pytest.fixture
def job(database: Database, storage: Storage) -> str:
    job_id = make_job(database, State.RUNNING)
    for path, content in FILES.items():
        make_artifact(database, storage, job_id, path, content)
    return job_id


def url(job: str, rest: str = "") -> str:
    return f"/v1/jobs/{job}/artifacts{rest}"


def test_the_files_of_a_running_job_are_listed_and_read(client: TestClient, job: str) -> None:
    page = client.get(url(job)).json()
    assert {file["path"] for file in page["data"]} == set(FILES)
    assert (page["has_more"], page["next"]) == (False, None)
    for file in page["data"]:
        answer = client.get(url(job, f"/{file['path']}"))
        assert answer.content == FILES[file["path"]]
        assert hashlib.sha256(answer.content).hexdigest() == file["sha256"]
        assert answer.headers["content-type"] == file["media_type"]
        assert (
            client.get(url(job, f"/{file['path']}"), headers={"If-None-Match": answer.headers["etag"]}).status_code
            == 304
        )
        part = client.get(url(job, f"/{file['path']}"), headers={"Range": "bytes=0-0"})
        assert (part.status_code, part.content) == (206, answer.content[:1])


def test_no_artifact_can_script_the_dashboard(client: TestClient, job: str) -> None:
    for path in FILES:
        for method in ("GET", "HEAD"):
            headers = client.request(method, url(job, f"/{path}")).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["content-security-policy"] == "default-src 'none'; sandbox"
            kind = headers["content-type"].partition(";")[0]
            assert kind in ("text/plain", "application/json", "image/png", "application/octet-stream")
            is_inline = headers["content-disposition"].startswith("inline")
            assert is_inline == (kind != "application/octet-stream")
    assert client.get(url(job, "/page.html")).headers["content-type"] == "text/plain; charset=utf-8"
    assert client.get(url(job, "/plot.svg")).headers["content-type"] == "text/plain; charset=utf-8"


def test_a_link_in_the_place_of_a_listed_file_is_missing_too(client: TestClient, job: str, storage: Storage) -> None:
    assert isinstance(storage, LocalStorage)
    file = storage.root / "jobs" / job / "artifacts" / "attempt-1" / "README.md"
    file.unlink()
    file.symlink_to("/etc/hostname")
    answer = client.get(url(job, "/README.md"))
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, "no such file")


def test_an_unknown_job_is_404(client: TestClient) -> None:
    for job in (new_id("job"), "a%00b", "nope"):
        for rest in ("", "/README.md"):
            answer = client.get(url(job, rest))
            assert (answer.status_code, answer.json()["error"]["message"]) == (404, "no such job")


def test_every_route_asks_for_a_key(client: TestClient, job: str) -> None:
    bare = TestClient(client.app)
    assert bare.get(url(job)).status_code == 401
    assert bare.get(url(job, "/README.md")).status_code == 401
    assert bare.head(url(job, "/README.md")).status_code == 401
