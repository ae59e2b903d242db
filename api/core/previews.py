"""Any page of a stored dataset in a few milliseconds: a sparse index of line starts, and a reader that uses it.

The index is pairs of unsigned 64-bit little-endian integers: rows before a place, and that place's byte offset.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from api.core.storage import Pinned

EVERY_BYTES = 256 * 1024
MAX_TEXT = 1000
MAX_PAGE_BYTES = 8 * 1024 * 1024
_ENTRY = struct.Struct("<QQ")


@dataclass(frozen=True)
class PreviewRow:
    """Row number `n`, from 1. `is_cut` says that a long text in it was shortened."""

    n: int
    row: dict[str, Any]
    is_cut: bool


def write_index(rows: Path, index: Path) -> None:
    """Note, for every block of the file, where the first line that begins in it begins."""
    n_before = offset = 0
    with rows.open("rb") as file, index.open("wb") as out:
        while block := file.read(EVERY_BYTES):
            newline = block.find(b"\n")
            if newline >= 0:
                out.write(_ENTRY.pack(n_before + 1, offset + newline + 1))
            n_before += block.count(b"\n")
            offset += len(block)


def read_page(
    rows: Pinned, index: Pinned, after: int, limit: int, *, is_full: bool
) -> tuple[list[PreviewRow], int | None]:
    """At most `limit` rows after row number `after`, and the `after` of the next page or None at the end.

    A page ends early at 8 MiB, but never before its first row.
    """
    entries = _Entries(index)
    place = bisect_right(entries, after, key=lambda entry: entry[0]) - 1
    n, offset = entries[place] if place >= 0 else (0, 0)
    page: list[PreviewRow] = []
    n_bytes = 0
    for line in _lines(rows.read(offset)):
        n += 1
        if n <= after:
            continue
        n_bytes += len(line)
        if len(page) == limit or (page and n_bytes > MAX_PAGE_BYTES):
            return page, page[-1].n
        row = json.loads(line)
        shown, is_cut = (row, False) if is_full else _cut(row)
        page.append(PreviewRow(n, shown, is_cut))
    return page, None


class _Entries(Sequence[tuple[int, int]]):
    """The index as a sequence, read entry by entry: a search touches some twenty of them."""

    def __init__(self, index: Pinned) -> None:
        self._index = index

    def __len__(self) -> int:
        return self._index.size_bytes // _ENTRY.size

    @overload
    def __getitem__(self, at: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[tuple[int, int]]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        return _ENTRY.unpack(b"".join(self._index.read(at * _ENTRY.size, (at + 1) * _ENTRY.size)))


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = bytearray()
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        rest += first
        for other in others:
            yield bytes(rest)
            rest = bytearray(other)
    if rest:
        yield bytes(rest)


def _cut(value: Any) -> tuple[Any, bool]:
    """The value with long texts shortened, and whether any was."""
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return f"{value[:MAX_TEXT]}… ({len(value) - MAX_TEXT} more characters)", True
    if isinstance(value, dict):
        pairs = {key: _cut(item) for key, item in value.items()}
        return {key: item for key, (item, _) in pairs.items()}, any(is_cut for _, is_cut in pairs.values())
    if isinstance(value, list):
        items = [_cut(item) for item in value]
        return [item for item, _ in items], any(is_cut for _, is_cut in items)
    return value, False
