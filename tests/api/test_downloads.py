"""Ranges, validators and header values, against the rules of RFC 9110 and RFC 6266."""

from __future__ import annotations

import email
import hashlib
import io
import os
import tarfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from api.archives import Member, Tar, Zip
from api.core.errors import Unavailable
from api.core.storage import LocalStorage
from api.downloads import Download, answer, disposition, file_name, media_type

CONTENT = bytes(range(256)) * 9000  # more than two chunks
SIZE = len(CONTENT)
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    storage = LocalStorage(tmp_path / "storage")
    (tmp_path / "file").write_bytes(CONTENT)
    storage.put("file", tmp_path / "file")
    return storage


@pytest.fixture
def client(storage: LocalStorage) -> TestClient:
    return client_of(storage)


def client_of(storage: LocalStorage) -> TestClient:
    def read(request: Request) -> Response:
        return answer(request, storage.pin("file"), Download("file.bin", etag=SHA, sha256=SHA))

    return TestClient(Starlette(routes=[Route("/", read, methods=["GET", "HEAD"])]))


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_whole_and_head(client: TestClient) -> None:
    for method in ("GET", "HEAD"):
        whole = client.request(method, "/")
        assert whole.status_code == 200
        assert whole.content == (CONTENT if method == "GET" else b"")
        assert whole.headers["content-length"] == str(SIZE)
        assert whole.headers["etag"] == f'"{SHA}"'
        assert whole.headers["accept-ranges"] == "bytes"
        assert whole.headers["x-content-type-options"] == "nosniff"


SINGLE = {
    "bytes=0-0": (0, 1),
    "bytes=0-": (0, SIZE),
    "bytes=100-1100000": (100, 1_100_001),
    f"bytes={SIZE - 1}-": (SIZE - 1, SIZE),
    f"bytes=10-{SIZE * 5}": (10, SIZE),
    "bytes=-7": (SIZE - 7, SIZE),
    f"bytes=-{SIZE * 5}": (0, SIZE),
    "Bytes = 3-4": (3, 5),
    "bytes=0-4, 3-9, 10-12": (0, 13),
    f"bytes=5-6,{SIZE + 3}-": (5, 7),
}


@pytest.mark.parametrize("header", SINGLE)
def test_one_range(client: TestClient, header: str) -> None:
    start, end = SINGLE[header]
    for method in ("GET", "HEAD"):
        part = client.request(method, "/", headers={"Range": header})
        assert part.status_code == 206
        assert part.headers["content-range"] == f"bytes {start}-{end - 1}/{SIZE}"
        assert part.headers["content-length"] == str(end - start)
        assert part.content == (CONTENT[start:end] if method == "GET" else b"")


IGNORED = ["bytes", "bytes=", "lines=0-1", "bytes=a-b", "bytes=-", "bytes=5-4", "bytes=0-1,x", "bytes=1", "0-1",
           "bytes=" + ",".join(f"{n * 10}-{n * 10 + 1}" for n in range(17)), "bytes=" + "9" * 30 + "-"]  # fmt: skip


@pytest.mark.parametrize("header", IGNORED)
def test_a_range_that_means_nothing_is_ignored(client: TestClient, header: str) -> None:
    whole = client.get("/", headers={"Range": header})
    assert (whole.status_code, len(whole.content)) == (200, SIZE)


@pytest.mark.parametrize("header", [f"bytes={SIZE}-", f"bytes={SIZE + 5}-{SIZE + 9}", "bytes=-0"])
def test_a_range_behind_the_end_is_416(client: TestClient, header: str) -> None:
    refused = client.get("/", headers={"Range": header})
    assert refused.status_code == 416
    assert refused.headers["content-range"] == f"bytes */{SIZE}"


def test_several_ranges_come_as_parts(client: TestClient) -> None:
    wanted = [(0, 4), (1_048_570, 1_048_590), (SIZE - 3, SIZE)]
    header = "bytes=1048570-1048589, 0-3, -3"
    answered = client.get("/", headers={"Range": header})
    assert answered.status_code == 206
    assert answered.headers["content-length"] == str(len(answered.content))
    boundary = answered.headers["content-type"].partition("boundary=")[2].encode()
    parts = answered.content.split(b"\r\n--" + boundary)
    assert parts[0] == b""
    assert parts[-1] == b"--\r\n"
    for (start, end), part in zip(wanted, parts[1:-1], strict=True):
        head, _, body = part.partition(b"\r\n\r\n")
        assert email.message_from_bytes(head.strip())["Content-Range"] == f"bytes {start}-{end - 1}/{SIZE}"
        assert body == CONTENT[start:end]


@given(st.lists(st.tuples(st.integers(0, 50), st.one_of(st.none(), st.integers(0, 50))), min_size=1, max_size=4))
@hypothesis_settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_ranges_hold_the_bytes_they_name(
    storage: LocalStorage, tmp_path: Path, ranges: list[tuple[int, int | None]]
) -> None:
    content = CONTENT[:60]
    (tmp_path / "small").write_bytes(content)
    storage.put("file", tmp_path / "small", link=False)
    client = client_of(storage)
    header = ", ".join(f"{start}-{'' if end is None else end}" for start, end in ranges)
    answered = client.get("/", headers={"Range": f"bytes={header}"})
    if any(end is not None and end < start for start, end in ranges):
        assert answered.status_code == 200
        return
    wanted = {at for start, end in ranges for at in range(start, 60 if end is None else end + 1)}
    assert answered.status_code == 206
    if "content-range" in answered.headers:
        assert answered.content == bytes(content[at] for at in sorted(wanted))
    assert answered.headers["content-length"] == str(len(answered.content))


def test_validators(client: TestClient) -> None:
    for tag in (f'"{SHA}"', f'W/"{SHA}"', f'"other", "{SHA}"', "*"):
        for method in ("GET", "HEAD"):
            kept = client.request(method, "/", headers={"If-None-Match": tag, "Range": "bytes=0-1"})
            assert (kept.status_code, kept.content) == (304, b"")
            assert kept.headers["etag"] == f'"{SHA}"'
    assert client.get("/", headers={"If-None-Match": '"other"'}).status_code == 200
    for tag, status in {
        f'"{SHA}"': 206,
        '"other"': 200,
        f'W/"{SHA}"': 200,
        "Sun, 06 Nov 1994 08:49:37 GMT": 200,
    }.items():
        part = client.get("/", headers={"Range": "bytes=0-1", "If-Range": tag})
        assert part.status_code == status


def test_no_answer_leaves_a_file_open(client: TestClient) -> None:
    client.get("/")
    before = open_files()
    for headers in ({}, {"Range": "bytes=0-1"}, {"Range": f"bytes={SIZE}-"}, {"If-None-Match": "*"}):
        for method in ("GET", "HEAD"):
            client.request(method, "/", headers=headers)
    assert open_files() == before


def test_a_file_that_changes_breaks_the_answer_off(storage: LocalStorage) -> None:
    pinned = storage.pin("file")
    (storage.root / "file").write_bytes(CONTENT[:100])
    with pytest.raises(Unavailable):
        b"".join(pinned.read())
    pinned.close()


NAMES = ["a.bin", "报告 🚀.jsonl", 'a"b\\c.jsonl', "a\r\nX-Evil: 1", "a;b=c'd%20e", "é" * 200, "\ud83d"]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_any_name_makes_a_safe_header(name: str) -> None:
    header = disposition(name)
    assert header.isascii()
    assert header.isprintable()
    assert header.count('"') == 2
    encoded = header.partition("; filename*=UTF-8''")[2]
    assert unquote(encoded) == name.encode("utf-8", "replace").decode()


def test_file_names_are_cut_to_what_disks_take() -> None:
    assert file_name("../x", ".tar") == "_x.tar"
    assert file_name("..", ".tar") == "file.tar"
    assert file_name("", "") == "file"
    long = file_name("é" * 500, ".tar")
    assert long.endswith("é.tar")
    assert len(long.encode()) <= 255


@pytest.mark.parametrize("name", ["a.html", "a.HTM", "a.svg", "a.xhtml", "a.xml", "a.js"])
def test_nothing_is_served_that_a_browser_would_run(name: str) -> None:
    assert media_type(name) == "text/plain; charset=utf-8"


def test_unknown_types_are_bytes() -> None:
    assert media_type("a.safetensors") == media_type("README") == media_type("a.mht") == "application/octet-stream"


# Archives


@pytest.fixture
def members(storage: LocalStorage, tmp_path: Path) -> dict[str, bytes]:
    files = {
        "model.safetensors": CONTENT,
        "empty": b"",
        "deep/" + "n" * 120 + "/报告.json": b"{}",
        "block": bytes(512),
    }
    for path, content in files.items():
        (tmp_path / "draft").write_bytes(content)
        storage.put(f"c/{path}", tmp_path / "draft", link=False)
    return files


def opened(storage: LocalStorage, members: dict[str, bytes]) -> list[Member]:
    return [Member(f"checkpoint-1/{path}", storage.pin(f"c/{path}")) for path in members]


AT = datetime(2026, 1, 2, tzinfo=UTC)


def test_a_tar_unpacks_to_the_same_bytes_and_is_as_long_as_told(
    storage: LocalStorage, members: dict[str, bytes]
) -> None:
    with Tar(opened(storage, members), AT) as tar:
        archive = b"".join(tar.read())
        assert len(archive) == tar.size_bytes
        for start, end in [(0, 1), (511, 513), (1000, 1_100_000), (tar.size_bytes - 1025, tar.size_bytes), (7, 7)]:
            assert b"".join(tar.read(start, end)) == archive[start:end]
    with tarfile.open(fileobj=io.BytesIO(archive), errorlevel=2) as unpacked:
        found = {info.name: unpacked.extractfile(info) for info in unpacked}
        assert {name: file.read() for name, file in found.items() if file} == {
            f"checkpoint-1/{path}": content for path, content in members.items()
        }
    with Tar(opened(storage, members), AT) as again:
        assert b"".join(again.read()) == archive


@given(st.integers(0, 2_400_000), st.integers(0, 5000))
@hypothesis_settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_part_of_a_tar_is_that_part(
    storage: LocalStorage, members: dict[str, bytes], start: int, length: int
) -> None:
    with Tar(opened(storage, members), AT) as tar:
        archive = b"".join(tar.read())
        end = min(start + length, tar.size_bytes)
        assert b"".join(tar.read(start, end)) == archive[start:end]


def test_a_zip_unpacks_to_the_same_bytes_and_is_as_long_as_told(
    storage: LocalStorage, members: dict[str, bytes]
) -> None:
    with Zip(opened(storage, members)) as made:
        archive = b"".join(made.read())
        assert len(archive) == made.size_bytes
    with zipfile.ZipFile(io.BytesIO(archive)) as unpacked:
        assert unpacked.testzip() is None
        assert {name: unpacked.read(name) for name in unpacked.namelist()} == {
            f"checkpoint-1/{path}": content for path, content in members.items()
        }


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_an_archive_survives_the_deletion_of_its_files_and_not_their_change(
    storage: LocalStorage, members: dict[str, bytes], kind: str
) -> None:
    def made() -> Tar | Zip:
        return Tar(opened(storage, members), AT) if kind == "tar" else Zip(opened(storage, members))

    with made() as archive:
        with (storage.root / "c" / "model.safetensors").open("r+b") as file:
            file.truncate(SIZE - 1)
        with pytest.raises(Unavailable):
            b"".join(archive.read())
    with made() as archive:
        storage.delete_prefix("c")
        assert len(b"".join(archive.read())) == archive.size_bytes
