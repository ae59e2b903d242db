"""Files of a checkpoint, one by one: resumable, checked against the digests the service lists, renamed when whole."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import httpx

from trainyard.errors import ConnectionFailed, DownloadBroken

RETRIES = 5
FIRST_PAUSE_S = 0.2


def download_files(
    http: httpx.Client,
    base: str,
    files: list[dict[str, Any]],
    target: Path,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> Path:
    """Each of `files` ({path, size_bytes, sha256}) from `base`/path into `target`. A second call resumes the first."""
    for file in files:
        relative = PurePosixPath(file["path"])
        if relative.is_absolute() or ".." in relative.parts:
            raise DownloadBroken(f"the service listed a file outside the folder: {file['path']!r}")
        _download_one(http, f"{base}/{relative}", file, target.joinpath(*relative.parts), on_bytes)
    return target


def _download_one(
    http: httpx.Client, url: str, file: dict[str, Any], target: Path, on_bytes: Callable[[int], None]
) -> None:
    if target.is_file() and target.stat().st_size == file["size_bytes"] and _sha256(target) == file["sha256"]:
        on_bytes(file["size_bytes"])
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    for attempt in range(RETRIES):
        try:
            _fetch(http, url, part, on_bytes)
            break
        except httpx.TransportError as error:
            if attempt == RETRIES - 1:
                raise ConnectionFailed(
                    f"{file['path']}: cut off {RETRIES} times ({error}); the same command goes on from here"
                ) from error
            time.sleep(FIRST_PAUSE_S * 2**attempt)
    found = _sha256(part)
    if found != file["sha256"]:
        part.unlink()
        raise DownloadBroken(
            f"{file['path']}: expected sha256 {file['sha256']}, found {found}; it was removed, try again"
        )
    part.replace(target)


def _fetch(http: httpx.Client, url: str, part: Path, on_bytes: Callable[[int], None]) -> None:
    start = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={start}-"} if start else {}
    with http.stream("GET", url, headers=headers) as response:
        if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # the part is already whole; its digest decides
        if response.is_error:
            response.read()
        response.raise_for_status()
        if response.status_code != httpx.codes.PARTIAL_CONTENT:
            start = 0
        on_bytes(start)
        with part.open("r+b" if start else "wb") as out:
            out.seek(start)
            for chunk in response.iter_raw():
                out.write(chunk)
                on_bytes(len(chunk))


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
