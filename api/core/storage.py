"""Where files are kept for good: a Protocol, and the one that keeps them in a local (or shared) folder.

Keys are '/'-joined safe names. Every component is opened relative to its parent with O_NOFOLLOW, so that neither a
name nor a symlink inside the folder can lead out of it.
"""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, Self

from api.core.confined import CHUNK_BYTES, files, open_regular, remove, take, translated
from api.core.errors import Invalid, NotFound, Unavailable
from api.core.names import is_safe_key
from api.core.settings import Settings

PARTIAL = ".partial"  # files on their way in
TRASH = ".trash"  # folders on their way out


class Pinned(Protocol):
    """An object held open: deleting it from storage does not end a read that has begun."""

    size_bytes: int

    def read(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Bytes start..end-1. Raises Unavailable when the content is no longer what was pinned."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


class Storage(Protocol):
    """An object store. A key that is not safe, or not there, raises NotFound; a full disk Unavailable(disk_full)."""

    def put(self, key: str, path: Path, *, link: bool = True) -> None:
        """Store the file at `path` under `key`, whole or not at all, durable on return. An older object is replaced.
        With `link` the content may be shared with `path`: pass False for a file that is still written to."""

    def pin(self, key: str) -> Pinned: ...

    def open(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]: ...

    def size(self, key: str) -> int: ...

    def exists(self, key: str) -> bool: ...

    def list(self, prefix: str) -> Iterator[str]:
        """Keys of the files below `prefix`, sorted; nothing when there is no such folder."""

    def delete_prefix(self, prefix: str) -> None:
        """Remove the object or the folder `prefix`; absent is fine. What is pinned stays readable."""

    def local_path(self, key: str) -> Path | None:
        """The file or folder on this machine, or None when it is not there or not on this machine."""


class LocalPinned:
    """An open file descriptor. `os.pread` leaves no shared position, so ranges may be read by any thread."""

    def __init__(self, fd: int, key: str) -> None:
        self._fd = fd
        self._key = key
        facts = os.fstat(fd)
        self.size_bytes = facts.st_size
        self._mtime_ns = facts.st_mtime_ns

    def read(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        end = self.size_bytes if end is None else end
        while start < end:
            chunk = os.pread(self._fd, min(CHUNK_BYTES, end - start), start)
            facts = os.fstat(self._fd)
            if not chunk or (facts.st_size, facts.st_mtime_ns) != (self.size_bytes, self._mtime_ns):
                raise Unavailable(f"{self._key} changed while it was read", code="storage_changed")
            start += len(chunk)
            yield chunk

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()  # an answer that was never begun has nobody else to close it


class LocalStorage:
    """Files below one folder; the folder may be shared by many machines."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.root = root.resolve()

    def put(self, key: str, path: Path, *, link: bool = True) -> None:
        if not is_safe_key(key):
            raise Invalid(f"{key!r} cannot be a storage key", code="key_invalid")
        with translated(key), self._folder(PARTIAL, create=True) as partial:
            temporary = secrets.token_hex(16)
            try:
                take(path, temporary, partial, link=link)
                parent, _, name = key.rpartition("/")
                with self._folder(parent, create=True) as folder:
                    os.rename(temporary, name, src_dir_fd=partial, dst_dir_fd=folder)
                    os.fsync(folder)
            finally:
                # Also after success: a rename onto another link of the same file does nothing and leaves both names.
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=partial)

    def pin(self, key: str) -> Pinned:
        with self._parent(key) as (folder, name):
            fd = open_regular(name, folder)
        return LocalPinned(fd, key)

    def open(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        pinned = self.pin(key)  # here and not in the generator: a missing file is told before anything was sent
        return _drain(pinned, start, end)

    def size(self, key: str) -> int:
        with self.pin(key) as pinned:
            return pinned.size_bytes

    def exists(self, key: str) -> bool:
        try:
            self.pin(key).close()
        except NotFound:
            return False
        return True

    def list(self, prefix: str) -> Iterator[str]:
        try:
            with self._parent(prefix) as (folder, name):
                fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        except NotFound:
            return
        try:
            yield from files(fd, prefix)
        finally:
            os.close(fd)

    def delete_prefix(self, prefix: str) -> None:
        with self._folder(TRASH, create=True) as trash:
            grave = secrets.token_hex(16)
            try:
                # One rename takes the whole folder away from readers; removing it may take long and may be cut short.
                with self._parent(prefix) as (folder, name):
                    os.rename(name, grave, src_dir_fd=folder, dst_dir_fd=trash)
            except NotFound:
                return
            with translated(prefix):
                remove(grave, trash)

    def sweep(self, older_than_s: float = 24 * 3600) -> None:
        """Remove what killed processes left half stored or half removed."""
        for place in (PARTIAL, TRASH):
            with translated(place), self._folder(place, create=True) as folder:
                for name in os.listdir(folder):
                    with suppress(FileNotFoundError):  # another process may sweep or finish at the same time
                        if time.time() - os.lstat(name, dir_fd=folder).st_ctime >= older_than_s:
                            remove(name, folder)

    def local_path(self, key: str) -> Path | None:
        try:
            with self._parent(key) as (folder, name):
                mode = os.lstat(name, dir_fd=folder).st_mode
        except NotFound:
            return None
        return self.root / key if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else None

    @contextmanager
    def _parent(self, key: str) -> Iterator[tuple[int, str]]:
        """The open folder a key lies in, and its name there. Errors of the file system inside become ours."""
        if not is_safe_key(key):
            raise NotFound("no such file")
        parent, _, name = key.rpartition("/")
        with translated(key), self._folder(parent, create=False) as folder:
            yield folder, name

    @contextmanager
    def _folder(self, key: str, *, create: bool) -> Iterator[int]:
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in filter(None, key.split("/")):
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, mode=0o700, dir_fd=fd)
                        os.fsync(fd)
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)


def make_storage(settings: Settings) -> Storage:
    """The storage these settings ask for."""
    storage = LocalStorage(settings.storage_dir)
    storage.sweep()
    return storage


def _drain(pinned: Pinned, start: int, end: int | None) -> Iterator[bytes]:
    with pinned:
        yield from pinned.read(start, end)
