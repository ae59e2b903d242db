"""Many stored files as one tar or zip, made while it is sent: no temporary file, no byte in memory for long.

Everything is opened before the first byte leaves, so an archive never loses a file half way. A tar is laid out
in full beforehand: its length is known and any range of it can be read again, so that a broken download resumes.
"""

from __future__ import annotations

import tarfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Self

from zipstream import ZipStream

from api.core.storage import Pinned

BLOCK = tarfile.BLOCKSIZE


@dataclass(frozen=True)
class Member:
    """A file of the archive: its path there, and its content, held open."""

    path: str
    content: Pinned


class _Bytes:
    """Bytes in memory that read like a pinned file."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.size_bytes = len(content)

    def read(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        yield self._content[start:end]

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None: ...


class Tar:
    """A tar archive as pinned bytes. The same members and the same instant give the same bytes."""

    def __init__(self, members: Sequence[Member], made_at: datetime) -> None:
        self._pieces: list[Pinned] = []
        for member in members:
            info = tarfile.TarInfo(member.path)
            info.size = member.content.size_bytes
            info.mtime = int(made_at.timestamp())
            header = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
            self._pieces += [_Bytes(header), member.content, _Bytes(bytes(-info.size % BLOCK))]
        self._pieces.append(_Bytes(bytes(2 * BLOCK)))
        self._ends = list(accumulate(piece.size_bytes for piece in self._pieces))
        self.size_bytes = self._ends[-1]

    def read(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        end = self.size_bytes if end is None else end
        for index in range(bisect_right(self._ends, start), len(self._pieces)):
            piece = self._pieces[index]
            offset = self._ends[index] - piece.size_bytes
            if offset >= end:
                return
            if piece.size_bytes:
                yield from piece.read(max(start - offset, 0), min(end - offset, piece.size_bytes))

    def close(self) -> None:
        for piece in self._pieces:
            piece.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Zip:
    """A zip archive, stored and not compressed. Checksums are known only once a file is read: no ranges."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._zip = ZipStream(sized=True)
        for member in members:
            self._zip.add(member.content.read(), member.path, size=member.content.size_bytes)
        self.size_bytes = len(self._zip)

    def read(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        if start or end not in (None, self.size_bytes):
            raise ValueError("a zip archive is read from its start to its end")
        yield from self._zip

    def close(self) -> None:
        for member in self._members:
            member.content.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
