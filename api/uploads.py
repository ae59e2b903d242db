"""An upload, streamed to a private folder as it arrives: a multipart form or a raw body, of any size, in flat memory.

The folder is locked while its request lives and removed with it; what a killed process left is removed by the next
upload.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anyio import CancelScope, to_thread
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.requests import ClientDisconnect, Request

from api.core.confined import translated
from api.core.errors import Invalid, TooLarge, Unavailable
from api.core.names import shown_name
from api.core.settings import Settings
from api.forms import DATASET_FIELDS, DatasetForm, Fields, RawBody, Sink

BATCH_BYTES = 1024 * 1024  # handed to a worker thread at once; a hop a network chunk would cost more than the write
CHECK_DISK_EVERY_BYTES = 64 * 1024 * 1024
RAW_TYPES = frozenset(
    {
        "application/jsonl",
        "application/x-jsonlines",
        "application/x-ndjson",
        "application/json",
        "application/gzip",
        "text/csv",
        "text/tab-separated-values",
        "application/octet-stream",
    }
)


@dataclass(frozen=True)
class Received:
    """A file as it was sent, in the request's private folder."""

    path: Path
    name: str
    texts: dict[str, str]
    """What the form's other fields held."""


@asynccontextmanager
async def private_folder(incoming: Path) -> AsyncIterator[Path]:
    """A fresh folder below `incoming`, gone with all its content when the block ends, however it ends."""
    folder, lock = await to_thread.run_sync(_make, incoming)
    try:
        yield folder
    finally:
        with CancelScope(shield=True):
            await to_thread.run_sync(shutil.rmtree, folder)
            os.close(lock)


async def receive(request: Request, folder: Path, settings: Settings, fields: Fields = DATASET_FIELDS) -> Received:
    """Stream the body's file into `folder`. Raises before reading anything where the headers tell enough."""
    size = request.headers.get("content-length")
    name = request.query_params.get("name")
    if name:
        shown_name(name)
    _check_size(int(size) if size else 0, settings)
    _check_disk(folder, settings, 2 * int(size) if size else 0)  # as sent, and its checked rows beside it
    target = folder / "sent"
    sink = _sink(request, target, fields)
    try:
        await _pour(request, sink, partial(_check, sink, settings, folder))
        with translated("the upload"):
            await to_thread.run_sync(sink.finish)
    except FormParserError as error:
        raise Invalid(f"the multipart form cannot be read: {error}", code="multipart_invalid") from error
    except ClientDisconnect as error:
        raise Invalid("the connection closed before the file was whole; send it again", code="upload_cut") from error
    finally:
        sink.close()
    return Received(target, name or sink.name or "dataset.jsonl", sink.texts)


async def _pour(request: Request, sink: Sink, check: partial[None]) -> None:
    batch = bytearray()
    unchecked = 0
    async for chunk in request.stream():
        batch += chunk
        if len(batch) >= BATCH_BYTES:
            unchecked += len(batch)
            await _write(sink, batch)
            batch = bytearray()
            check(with_disk=unchecked >= CHECK_DISK_EVERY_BYTES)
            unchecked %= CHECK_DISK_EVERY_BYTES
    await _write(sink, batch)
    check(with_disk=False)


async def _write(sink: Sink, batch: bytearray) -> None:
    with translated("the upload"):
        await to_thread.run_sync(sink.feed, bytes(batch))


def _check(sink: Sink, settings: Settings, folder: Path, *, with_disk: bool) -> None:
    _check_size(sink.size_bytes, settings)
    if with_disk:
        _check_disk(folder, settings, 0)


def _check_size(size_bytes: int, settings: Settings) -> None:
    if size_bytes > settings.max_upload_bytes:
        raise TooLarge(
            f"the file is larger than the {settings.max_upload_bytes} bytes allowed here (max_upload_bytes); "
            "split it into several datasets",
            code="upload_too_large",
            param="file",
        )


def _check_disk(folder: Path, settings: Settings, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed + settings.min_free_disk_bytes:
        raise Unavailable(
            f"the disk has {free} bytes left; this upload may need {needed} and "
            f"{settings.min_free_disk_bytes} stay free (min_free_disk_bytes); free some space",
            code="disk_full",
        )


def _sink(request: Request, target: Path, fields: Fields) -> Sink:
    content_type = request.headers.get("content-type", "")
    kind, options = parse_options_header(content_type)
    if kind == b"multipart/form-data":
        boundary = options.get(b"boundary")
        if not boundary:
            raise Invalid("the multipart form has no boundary in its Content-Type", code="multipart_invalid")
        return DatasetForm(boundary, target, fields)
    if kind.decode("latin-1") in RAW_TYPES:
        return RawBody(target)
    raise Invalid(
        f"a dataset cannot be sent as {content_type[:100]!r}; send a multipart form with the field `file`, "
        "or the file itself as application/jsonl",
        code="content_type_unsupported",
    )


def _make(incoming: Path) -> tuple[Path, int]:
    """A new locked folder, and the lock. Abandoned folders, whose locks died with their processes, are removed."""
    with translated("the upload"):
        incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _alone(incoming):
            for other in incoming.iterdir():
                _remove_if_abandoned(other)
            folder = incoming / secrets.token_hex(16)
            folder.mkdir(mode=0o700)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
    return folder, lock


@contextmanager
def _alone(incoming: Path) -> Iterator[None]:
    """One process at a time makes or sweeps folders, so that none is swept between its making and its lock."""
    fd = os.open(incoming, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _remove_if_abandoned(folder: Path) -> None:
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return  # its request just ended
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    except BlockingIOError:
        pass  # its request lives
    finally:
        os.close(fd)
