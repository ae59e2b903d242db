"""Files that grow: whole records of events.jsonl, and log lines fit for people.

Both read on from a byte offset in bounded memory and hold no other state that a restart would miss.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from trainer_core.contract import AnyRecord, Note, parse_record

CHUNK_BYTES = 256 * 1024
MAX_LINE_BYTES = 8 * 1024
MAX_RECORD_BYTES = 16 * 1024 * 1024
# Updates of a progress bar that survive: the newest, no more often than this.
UPDATE_EVERY_S = 0.5

# CSI sequences (colours, cursor), OSC sequences (titles, links), and two-character escapes.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# Control characters say nothing to people, and PostgreSQL refuses NUL; a tab stays.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_END = re.compile(rb"[\r\n]")


class RecordTail:
    """events.jsonl from its beginning: each record once, in order, without a gap in `seq`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self._seq = 0

    def read(self) -> list[AnyRecord]:
        """The whole records that were added since, a chunk's worth at a time; a torn line waits for its end.

        A line that is no record is told of by a Note in its place, as is a number that was left out.
        """
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                chunk = file.read(CHUNK_BYTES)
        except FileNotFoundError:
            return []
        self._offset += len(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > MAX_RECORD_BYTES:
            self._rest = b"x"  # no record is so long: what is left of the line will be refused as invalid
        return [record for line in lines if line.strip() for record in self._in_order(line)]

    def _in_order(self, line: bytes) -> Iterator[AnyRecord]:
        try:
            record = parse_record(line)
        except ValidationError:
            return  # if it stood for a record, the next one's number leaves a gap, which is told of below
        if record.seq <= self._seq:
            return
        for missing in range(self._seq + 1, record.seq):
            message = f"Record {missing} of events.jsonl could not be read; the run goes on without it."
            yield Note(seq=missing, at=record.at, level="warning", message=message)
        self._seq = record.seq
        yield record


@dataclass(frozen=True)
class Line:
    at: datetime
    text: str


class LogTail:
    """One log file from a byte offset on. `offset` is the end of the last line given out: a restart begins there.

    A line ended by a carriage return is an update that the next one replaces; the newest is given out now and then,
    and the last one when the line ends.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self._position = offset
        self._line = bytearray()
        self._n_bytes = 0
        self._update: str | None = None
        self._is_told = False
        self._told_at = float("-inf")

    def read(self, now_s: float, *, is_last: bool = False) -> list[Line]:
        """The lines of one more chunk; with `is_last` also the unfinished one where the file ends."""
        at = datetime.now(UTC)
        chunk = self._chunk()
        texts = list(self._split(chunk, now_s))
        if is_last and len(chunk) < CHUNK_BYTES:
            texts += self._end_of_line(self._position)
        return [Line(at, text) for text in texts]

    @property
    def n_bytes_left(self) -> int:
        """Bytes of the file that were not read yet."""
        return max(0, self.path.stat().st_size - self._position) if self.path.exists() else 0

    def _chunk(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                file.seek(self._position)
                return file.read(CHUNK_BYTES)
        except FileNotFoundError:
            return b""

    def _split(self, chunk: bytes, now_s: float) -> Iterator[str]:
        origin, begin = self._position, 0
        for match in _END.finditer(chunk):
            self._add(chunk[begin : match.start()])
            begin = match.end()
            if match.group() == b"\n":
                yield from self._end_of_line(origin + begin)
            else:
                yield from self._carriage_return(origin + begin, now_s)
        self._add(chunk[begin:])
        self._position = origin + len(chunk)

    def _add(self, piece: bytes) -> None:
        self._n_bytes += len(piece)
        self._line += piece[: MAX_LINE_BYTES - len(self._line)]

    def _carriage_return(self, position: int, now_s: float) -> Iterator[str]:
        text = self._taken()
        if text:
            self._update = text
        if self._update is not None and now_s - self._told_at >= UPDATE_EVERY_S:
            yield self._update
            self._update, self._is_told, self._told_at, self.offset = None, True, now_s, position

    def _end_of_line(self, position: int) -> Iterator[str]:
        is_unwritten = self._n_bytes == 0
        text = self._taken()
        if is_unwritten and self._update is not None:
            text = self._update
        # A line whose last update was given out already has no more to say; a blank line of its own stays one.
        if text or not (self._is_told or position == self.offset):
            yield text
        self._update, self._is_told, self.offset = None, False, position

    def _taken(self) -> str:
        """The line so far as text for people, and a fresh line begun."""
        text = clean(bytes(self._line))
        if self._n_bytes > len(self._line):
            text += f" ... [cut: this line had {self._n_bytes:,} bytes]"
        self._line.clear()
        self._n_bytes = 0
        return text


def clean(line: bytes) -> str:
    """Bad UTF-8 replaced; escape sequences and control characters taken out."""
    return _CONTROL.sub("", _ANSI.sub("", line.decode("utf-8", errors="replace")))
