"""What only a real socket shows: paths exactly as sent, clients that go away, memory, uploads at the same time."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fastapi import FastAPI

from api.core.db import Database
from api.core.settings import Settings
from api.core.storage import LocalStorage, Storage
from tests.api.files.conftest import AUTH, OK3, files_below, jsonl, make_artifact, make_checkpoint

# As a client can write them in a path, encoded or not; none of them may be more than a missing file.
UNSAFE = [
    "../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e/x",
    "%2e%2e%2f%2e%2e%2fetc/passwd",
    "//etc/passwd",
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "..%5c..%5cx",
    "..\\..\\x",
    "a%00b",
    "%00",
    "deep/../a.json",
    "deep//er",
    "./a.json",
    "a.json/",
    "a.json%00.txt",
    "deep",
    "",
    "%ff%fe",
    "x" * 4000,
    "link",
    "folder/hostname",
    "folder%2fhostname",
    "unlisted",
]


def call(live: str, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(live).netloc)
    connection.request(method, path, body, AUTH | headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


def until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


@pytest.fixture
def places(database: Database, storage: Storage, job_id: str) -> dict[str, str]:
    """Where files are read over HTTP -> the folder they lie in; each with links out of it and an unlisted file."""
    assert isinstance(storage, LocalStorage)
    make_checkpoint(database, storage, job_id, 20, {"a.json": b"{}", "deep/b": b"b"})
    make_artifact(database, storage, job_id, "a.json", b"{}")
    found = {
        f"/v1/jobs/{job_id}/checkpoints/20/files/": f"jobs/{job_id}/checkpoints/20/attempt-1",
        f"/v1/jobs/{job_id}/artifacts/": f"jobs/{job_id}/artifacts/attempt-1",
    }
    for folder in found.values():
        (storage.root / folder / "link").symlink_to("/etc/hostname")
        (storage.root / folder / "folder").symlink_to("/etc")
        (storage.root / folder / "unlisted").write_bytes(b"stored, but on no list")
    return found


def test_unsafe_names_get_the_answer_of_a_missing_file(live: str, places: dict[str, str]) -> None:
    for place in places:
        missing = call(live, "GET", f"{place}absent")
        assert missing[0] == 404
        assert json.loads(missing[1])["error"]["message"] == "no such file"
        assert call(live, "GET", f"{place}a.json") == (200, b"{}")
        for name in UNSAFE:
            assert call(live, "GET", place + name) == missing, name
            assert call(live, "HEAD", place + name) == (404, b""), name


def test_ids_that_climb_reach_nothing(live: str) -> None:
    for place, name in product(("/v1/datasets/", "/v1/jobs/"), ("..", "%2e%2e", "..%2f..", "a%00b", "%00", "\\")):
        for rest in ("", "/rows", "/content", "/artifacts/x", "/checkpoints/best/archive"):
            assert call(live, "GET", place + name + rest)[0] == 404, (place, name, rest)


def form(content: bytes, name: str = "x.jsonl") -> tuple[bytes, str]:
    head = f'--b0\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
    return head + content + b"\r\n--b0--\r\n", "multipart/form-data; boundary=b0"


@pytest.mark.parametrize("kind", ["form", "raw"])
def test_a_client_that_goes_away_leaves_nothing(live: str, settings: Settings, kind: str) -> None:
    body, content_type = form(b'{"text": "x"}\n' * 300_000)
    if kind == "raw":
        body, content_type = b'{"text": "x"}\n' * 300_000, "application/jsonl"
    address = urlsplit(live)
    with socket.create_connection((address.hostname, address.port)) as sender:
        head = f"POST /v1/datasets HTTP/1.1\r\nHost: x\r\nAuthorization: {AUTH['Authorization']}\r\n"
        sender.sendall(f"{head}Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        sender.sendall(body[: len(body) // 2])
        assert until(lambda: any("sent" in name for name in files_below(settings.incoming_dir)))
    assert until(lambda: list(settings.incoming_dir.iterdir()) == [])
    assert files_below(settings.storage_dir) == set()
    assert json.loads(call(live, "GET", "/v1/datasets")[1])["data"] == []


def test_a_reader_that_goes_away_lets_go_of_its_file(
    live: str, database: Database, storage: Storage, job_id: str
) -> None:
    make_checkpoint(database, storage, job_id, 1, {"weights": bytes(64 * 1024 * 1024)})
    address = urlsplit(live)

    def is_open() -> bool:
        found = []
        for fd in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):  # closed since it was listed
                found.append(os.readlink(f"/proc/self/fd/{fd}"))
        return any(target.endswith("/weights") for target in found)

    for rest in ("files/weights", "archive", "archive?format=zip"):
        with socket.create_connection((address.hostname, address.port)) as reader:
            head = f"GET /v1/jobs/{job_id}/checkpoints/last/{rest} HTTP/1.1\r\nHost: x\r\n"
            reader.sendall(f"{head}Authorization: {AUTH['Authorization']}\r\n\r\n".encode())
            assert reader.recv(1000).startswith(b"HTTP/1.1 200")
            assert until(is_open)
        assert until(lambda: not is_open()), rest


def test_a_download_outlives_the_removal_of_its_checkpoint(
    live: str, database: Database, storage: Storage, job_id: str
) -> None:
    weights = os.urandom(1024) * 32 * 1024
    make_checkpoint(database, storage, job_id, 1, {"a": b"a", "weights": weights})
    connection = http.client.HTTPConnection(urlsplit(live).netloc)
    connection.request("GET", f"/v1/jobs/{job_id}/checkpoints/1/archive", headers=AUTH)
    answer = connection.getresponse()
    begun = answer.read(1000)
    storage.delete_prefix(f"jobs/{job_id}")
    whole = begun + answer.read()
    connection.close()
    assert len(whole) == int(answer.headers["content-length"])
    assert weights in whole


def test_uploads_at_the_same_time_do_not_mix(live: str, settings: Settings) -> None:
    contents = [b"".join(b'{"text": "%d of %d"}\n' % (n, which) for n in range(20_000)) for which in range(6)]
    answers: list[tuple[int, bytes]] = []

    def send(content: bytes) -> None:
        body, content_type = form(content)
        answers.append(call(live, "POST", "/v1/datasets", body, **{"Content-Type": content_type}))

    threads = [threading.Thread(target=send, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {status for status, _ in answers} == {201}
    digests = {json.loads(content)["sha256"] for _, content in answers}
    assert digests == {hashlib.sha256(content).hexdigest() for content in contents}
    assert list(settings.incoming_dir.iterdir()) == []


def test_memory_does_not_grow_with_the_file(live: str, settings: Settings, tmp_path: Path) -> None:
    row = b'{"text": "' + b"x" * 100_000 + b'"}\n'
    n_rows = 1500  # 150 MB

    def body() -> Iterator[bytes]:
        whole, _ = form(b"%")
        head, tail = whole.split(b"%")
        yield head
        for _ in range(n_rows):
            yield row
        yield tail

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    _, content_type = form(b"")
    peak, stop = resident(), threading.Event()
    before = peak

    def watch() -> None:
        nonlocal peak
        while not stop.wait(0.01):
            peak = max(peak, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    connection = http.client.HTTPConnection(urlsplit(live).netloc)
    connection.request("POST", "/v1/datasets", body(), AUTH | {"Content-Type": content_type}, encode_chunked=True)
    answer = connection.getresponse()
    dataset = json.loads(answer.read())
    connection.close()
    assert answer.status == 201, dataset
    connection = http.client.HTTPConnection(urlsplit(live).netloc)
    connection.request("GET", f"/v1/datasets/{dataset['id']}/content", headers=AUTH)
    answer = connection.getresponse()
    n_bytes = 0
    while chunk := answer.read(65536):
        n_bytes += len(chunk)
    connection.close()
    stop.set()
    watcher.join()
    assert n_bytes == dataset["size_bytes"] == n_rows * len(row)
    assert peak - before < 60 * 1024 * 1024


def test_a_file_over_the_limit_is_refused_before_it_has_ended(live: str, app: FastAPI, settings: Settings) -> None:
    app.state.parts = replace(app.state.parts, settings=settings.model_copy(update={"max_upload_bytes": 1_000_000}))
    address = urlsplit(live)
    with socket.create_connection((address.hostname, address.port), timeout=10) as sender:
        head = f"POST /v1/datasets HTTP/1.1\r\nHost: x\r\nAuthorization: {AUTH['Authorization']}\r\n"
        sender.sendall(f"{head}Content-Type: application/jsonl\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        sender.sendall(b"200000\r\n" + b"x" * 0x200000 + b"\r\n")
        assert sender.recv(1000).startswith(b"HTTP/1.1 413")
    assert until(lambda: list(settings.incoming_dir.iterdir()) == [])


def test_a_slow_upload_does_not_hold_up_the_others(live: str, database: Database) -> None:
    address = urlsplit(live)
    with socket.create_connection((address.hostname, address.port)) as slow:
        head = f"POST /v1/datasets HTTP/1.1\r\nHost: x\r\nAuthorization: {AUTH['Authorization']}\r\n"
        slow.sendall(f"{head}Content-Type: application/jsonl\r\nContent-Length: 1000\r\n\r\n".encode() + b'{"text": "')
        time.sleep(0.1)
        body, content_type = form(jsonl(OK3))
        assert call(live, "POST", "/v1/datasets", body, **{"Content-Type": content_type})[0] == 201
