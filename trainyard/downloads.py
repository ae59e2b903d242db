"""Files of a checkpoint, one by one: resumable, checked against the digests the service lists, renamed when whole."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import httpx

from trainyard.calls import Fetch, Flow, Sleep
from trainyard.errors import ConnectionFailed, DownloadBroken
from trainyard.results import File

RETRIES = 5
FIRST_PAUSE_S = 0.2
OnBytes = Callable[[int], None]


def fetch_files(
    base: str, files: Sequence[File | Mapping[str, Any]], target: Path, on_bytes: OnBytes = lambda _: None
) -> Flow[Path]:
    """Each of `files` ({path, size_bytes, sha256}) from `base`/path into `target`. A second run resumes the first."""
    for file in files:
        relative = PurePosixPath(file["path"])
        if relative.is_absolute() or ".." in relative.parts:
            raise DownloadBroken(f"the service listed a file outside the folder: {file['path']!r}")
        yield from _fetch_one(f"{base}/{relative}", file, target.joinpath(*relative.parts), on_bytes)
    return target


def download_files(
    http: httpx.Client,
    base: str,
    files: Sequence[File | Mapping[str, Any]],
    target: Path,
    on_bytes: OnBytes = lambda _: None,
) -> Path:
    """`fetch_files`, carried out over a connection."""
    flow = fetch_files(base, files, target, on_bytes)
    step, error = next(flow, None), None
    try:
        while step is not None:
            try:
                _carry_out(http, step)
            except httpx.TransportError as cut:
                error = cut
            step = flow.send(None) if error is None else flow.throw(error)
            error = None
    except StopIteration:
        pass
    return target


def _carry_out(http: httpx.Client, step: object) -> None:
    if isinstance(step, Sleep):
        time.sleep(step.seconds)
    elif isinstance(step, Fetch):
        fetch(http, step)


def _fetch_one(url: str, file: File | Mapping[str, Any], target: Path, on_bytes: OnBytes) -> Flow[None]:
    if target.is_file() and target.stat().st_size == file["size_bytes"] and _sha256(target) == file["sha256"]:
        on_bytes(file["size_bytes"])
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    for attempt in range(RETRIES):
        try:
            yield Fetch(url, part, on_bytes)
            break
        except httpx.TransportError as error:
            if attempt == RETRIES - 1:
                raise ConnectionFailed(
                    f"{file['path']}: cut off {RETRIES} times ({error}); the same command goes on from here"
                ) from error
        yield Sleep(FIRST_PAUSE_S * 2**attempt)
    found = _sha256(part)
    if found != file["sha256"]:
        part.unlink()
        raise DownloadBroken(
            f"{file['path']}: expected sha256 {file['sha256']}, found {found}; it was removed, try again"
        )
    part.replace(target)


def fetch(http: httpx.Client, step: Fetch) -> None:
    """The bytes that a part lacks."""
    start = _size(step.part)
    with http.stream("GET", step.path, headers=_range(start)) as response:
        if response.is_error:
            response.read()
        if _is_whole(response):
            return
        with _opened(response, step, start) as out:
            for chunk in response.iter_raw():
                out.write(chunk)
                step.on_bytes(len(chunk))


async def fetch_async(http: httpx.AsyncClient, step: Fetch) -> None:
    """The same, awaited."""
    start = _size(step.part)
    async with http.stream("GET", step.path, headers=_range(start)) as response:
        if response.is_error:
            await response.aread()
        if _is_whole(response):
            return
        with _opened(response, step, start) as out:
            async for chunk in response.aiter_raw():
                out.write(chunk)
                step.on_bytes(len(chunk))


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _range(start: int) -> dict[str, str]:
    return {"Range": f"bytes={start}-"} if start else {}


def _is_whole(response: httpx.Response) -> bool:
    """Nothing comes after what the part holds already; its digest decides."""
    return response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE


def _opened(response: httpx.Response, step: Fetch, start: int) -> BinaryIO:
    """The part, open where the answer's bytes belong."""
    response.raise_for_status()
    if response.status_code != httpx.codes.PARTIAL_CONTENT:
        start = 0
    step.on_bytes(start)
    out = step.part.open("r+b" if start else "wb")
    out.seek(start)
    return out


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
