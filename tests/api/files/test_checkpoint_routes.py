"""Checkpoints over HTTP: which is best and last, files by range, archives, and nothing outside the manifest."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zipfile
from itertools import product
from urllib.parse import unquote

import pytest
from starlette.testclient import TestClient

from api.core import checkpoints
from api.core.checkpoints import Listed
from api.core.db import Database
from api.core.ids import new_id
from api.core.storage import LocalStorage, Pinned, Storage
from api.core.tables import Checkpoint
from tests.api.files.conftest import make_checkpoint, make_job, set_best

FILES = {"adapter_model.safetensors": os.urandom(2_500_000), "adapter_config.json": b"{}", "deep/er/状態.pt": b"state"}


@pytest.fixture
def job(database: Database, storage: Storage, job_id: str) -> str:
    for step in (10, 20, 30):
        make_checkpoint(database, storage, job_id, step, {**FILES, "step": str(step).encode()})
    set_best(database, job_id, 20)
    return job_id


def url(job: str, rest: str = "") -> str:
    return f"/v1/jobs/{job}/checkpoints{rest}"


def test_the_list_says_which_is_best_and_which_is_last(client: TestClient, job: str) -> None:
    page = client.get(url(job)).json()
    assert (page["has_more"], page["next"]) == (False, None)
    assert [(c["step"], c["is_best"], c["is_last"]) for c in page["data"]] == [
        (10, False, False),
        (20, True, False),
        (30, False, True),
    ]
    best = page["data"][1]
    assert best["n_files"] == len(best["files"]) == 4
    assert best["size_bytes"] == sum(file["size_bytes"] for file in best["files"])
    assert best["metrics"] == {"loss": 0.5, "eval_loss": None}
    assert best["nonfinite"] == {"eval_loss": "NaN"}
    assert client.head(best["archive_url"]).status_code == 200


def test_last_is_of_the_newest_attempt(client: TestClient, job: str, database: Database, storage: Storage) -> None:
    make_checkpoint(database, storage, job, 15, FILES, attempt=2)
    assert [c["step"] for c in client.get(url(job)).json()["data"] if c["is_last"]] == [15]
    assert client.get(url(job, "/last/archive")).headers["content-disposition"].count("step-15") == 2


def test_a_job_without_checkpoints_has_an_empty_list_and_no_best(client: TestClient, job_id: str) -> None:
    assert client.get(url(job_id)).json() == {"data": [], "has_more": False, "next": None}
    for which in ("best", "last", "10"):
        missing = client.get(url(job_id, f"/{which}/archive"))
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "no_such_checkpoint")


def test_every_listed_file_is_there_with_its_digest(client: TestClient, job: str) -> None:
    for which in ("best", "20"):
        for file in client.get(url(job)).json()["data"][1]["files"]:
            answer = client.get(url(job, f"/{which}/files/{file['path']}"))
            assert answer.status_code == 200
            assert hashlib.sha256(answer.content).hexdigest() == file["sha256"]
            assert answer.headers["etag"] == f'"{file["sha256"]}"'
            assert answer.headers["content-length"] == str(file["size_bytes"])
    manifest = client.get(url(job, "/20/files/manifest.json"))
    assert hashlib.sha256(manifest.content).hexdigest() == client.get(url(job)).json()["data"][1]["manifest_sha256"]


def test_a_file_resumes_from_where_it_broke_off(client: TestClient, job: str) -> None:
    path = url(job, "/best/files/adapter_model.safetensors")
    first = client.get(path, headers={"Range": "bytes=0-999999"})
    rest = client.get(path, headers={"Range": "bytes=1000000-", "If-Range": first.headers["etag"]})
    assert (first.status_code, rest.status_code) == (206, 206)
    assert first.content + rest.content == FILES["adapter_model.safetensors"]
    assert client.get(path, headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    assert client.head(path).headers["content-length"] == "2500000"


def test_a_tar_holds_every_file_and_resumes(client: TestClient, job: str) -> None:
    answer = client.get(url(job, "/best/archive"))
    assert answer.headers["content-type"] == "application/x-tar"
    assert answer.headers["content-length"] == str(len(answer.content))
    header = answer.headers["content-disposition"]
    assert unquote(header.partition("UTF-8''")[2]) == "_x 报告-step-20.tar"
    assert 'filename="_x __-step-20.tar"' in header
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        found = {info.name: tar.extractfile(info) for info in tar}
    assert set(found) == {f"checkpoint-20/{path}" for path in (*FILES, "step", "manifest.json")}
    tag = answer.headers["etag"]
    rest = client.get(url(job, "/20/archive"), headers={"Range": "bytes=1234567-", "If-Range": tag})
    assert (rest.status_code, rest.content) == (206, answer.content[1234567:])
    other = client.get(url(job, "/30/archive"), headers={"Range": "bytes=1234567-", "If-Range": tag})
    assert other.status_code == 200


def test_a_zip_holds_every_file(client: TestClient, job: str) -> None:
    answer = client.get(url(job, "/10/archive?format=zip"))
    assert answer.headers["content-length"] == str(len(answer.content))
    assert answer.headers["accept-ranges"] == "none"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as made:
        assert made.testzip() is None
        assert made.read("checkpoint-10/adapter_model.safetensors") == FILES["adapter_model.safetensors"]
        assert made.read("checkpoint-10/deep/er/状態.pt") == b"state"
    assert client.get(url(job, "/10/archive?format=rar")).status_code == 422


def test_a_link_in_the_place_of_a_listed_file_is_missing_too(client: TestClient, job: str, storage: Storage) -> None:
    assert isinstance(storage, LocalStorage)
    file = storage.root / "jobs" / job / "checkpoints" / "20" / "attempt-1" / "step"
    file.unlink()
    file.symlink_to("/etc/hostname")
    assert client.get(url(job, "/20/files/step")).json()["error"]["message"] == "no such file"
    assert client.get(url(job, "/20/archive")).status_code == 404


def test_what_names_no_checkpoint_is_404(client: TestClient, job: str) -> None:
    names = ("0", "-1", "+20", "1e1", "20.0", "BEST", "best%00", "9" * 30, "२०")
    for which, rest in product(names, ("/files/step", "/archive")):
        assert client.get(url(job, f"/{which}{rest}")).status_code == 404


def test_an_unknown_job_is_404_everywhere(client: TestClient) -> None:
    for job in (new_id("job"), "a%00b", "nope"):
        for rest in ("", "/best/files/x", "/best/archive"):
            answer = client.get(url(job, rest))
            assert (answer.status_code, answer.json()["error"]["message"]) == (404, "no such job")


def test_a_file_of_another_size_than_its_manifest_says_is_not_sent(
    client: TestClient, job: str, storage: Storage
) -> None:
    assert isinstance(storage, LocalStorage)
    (storage.root / "jobs" / job / "checkpoints" / "20" / "attempt-1" / "step").write_bytes(b"20 and more")
    for rest in ("/files/step", "/archive", "/archive?format=zip"):
        answer = client.get(url(job, f"/20{rest}"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage_changed")


def test_last_moves_on_between_the_row_and_its_files(
    client: TestClient, job: str, database: Database, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = checkpoints.pin_all
    calls = 0

    def removed_meanwhile(kept: Storage, listed: Listed) -> list[tuple[str, Pinned]]:
        nonlocal calls
        calls += 1
        if calls == 1:
            make_checkpoint(database, storage, job, 40, FILES)
            with database.session() as session:
                session.delete(session.get_one(Checkpoint, listed.checkpoint.id))
            storage.delete_prefix(listed.checkpoint.storage_prefix)
        return real(kept, listed)

    monkeypatch.setattr(checkpoints, "pin_all", removed_meanwhile)
    answer = client.get(url(job, "/last/archive"))
    assert answer.status_code == 200
    assert "step-40" in answer.headers["content-disposition"]
    assert calls == 2


def test_a_failed_archive_leaves_no_file_open(client: TestClient, job: str, storage: Storage) -> None:
    client.get(url(job, "/20/archive"))
    before = len(os.listdir("/proc/self/fd"))
    storage.delete_prefix(f"jobs/{job}/checkpoints/20/attempt-1/step")
    for _ in range(3):
        assert client.get(url(job, "/20/archive")).status_code == 404
    assert len(os.listdir("/proc/self/fd")) == before


def test_every_route_asks_for_a_key(client: TestClient, database: Database) -> None:
    job = make_job(database)
    bare = TestClient(client.app)
    for rest, method in product(("", "/best/files/x", "/best/archive"), ("GET", "HEAD")):
        assert bare.request(method, url(job, rest)).status_code in ((401,) if rest or method == "GET" else (401, 405))
