"""Downloads resume where they were cut, and a wrong byte never gets its final name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from trainyard.downloads import download_files
from trainyard.errors import DownloadBroken

CONTENT = bytes(range(256)) * 4000


class CutAfter(httpx.SyncByteStream):
    def __init__(self, content: bytes, n: int) -> None:
        self.content, self.n = content, n

    def __iter__(self) -> Iterator[bytes]:
        yield self.content[: self.n]
        raise httpx.ReadError("cut")


def listed(content: bytes = CONTENT, path: str = "deep/model.safetensors") -> list[dict[str, Any]]:
    return [{"path": path, "size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}]


def server(content: bytes, cut_first: int | None = None) -> tuple[httpx.Client, list[str]]:
    ranges: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        ranges.append(request.headers.get("range", ""))
        start = int(re.sub(r"\D", "", ranges[-1]) or 0)
        if start >= len(content):
            return httpx.Response(416)
        status = 206 if start else 200
        if cut_first is not None and len(ranges) == 1:
            return httpx.Response(status, stream=CutAfter(content[start:], cut_first))
        return httpx.Response(status, stream=httpx.ByteStream(content[start:]))

    return httpx.Client(transport=httpx.MockTransport(answer), base_url="http://service"), ranges


def test_a_cut_download_goes_on_from_the_bytes_it_has(tmp_path: Path) -> None:
    http, ranges = server(CONTENT, cut_first=100_000)
    download_files(http, "/files", listed(), tmp_path)
    assert (tmp_path / "deep/model.safetensors").read_bytes() == CONTENT
    assert ranges == ["", "bytes=100000-"]


def test_a_second_call_fetches_nothing(tmp_path: Path) -> None:
    http, ranges = server(CONTENT)
    for _ in range(2):
        download_files(http, "/files", listed(), tmp_path)
    assert len(ranges) == 1


def test_a_wrong_digest_leaves_no_file(tmp_path: Path) -> None:
    http, _ = server(CONTENT[:-1] + b"x")
    with pytest.raises(DownloadBroken, match="sha256"):
        download_files(http, "/files", listed(), tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("path", ["../evil", "/etc/evil", "a/../../evil"])
def test_a_listed_path_outside_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    http, ranges = server(CONTENT)
    with pytest.raises(DownloadBroken, match="outside"):
        download_files(http, "/files", listed(path=path), tmp_path / "in")
    assert ranges == []
