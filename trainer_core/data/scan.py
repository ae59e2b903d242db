"""From a stream of UTF-8 bytes to rows with their place: JSONL line by line, a JSON array element by element.

Pure: standard library only. Holds one chunk and one row at a time, also where the whole array is one line.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainer_core.data.decode import Parsed, StrictDecoder
from trainer_core.data.problems import RowFault, RowProblem, UploadRefused
from trainer_core.data.sources import UTF8_BOM, Content

_SPACE = re.compile(r"[ \t\r\n]*")
# A raw line break can only lie between tokens, since strings escape theirs; so do the blanks around it.
_BREAKS = re.compile(r"[ \t]*[\r\n][ \t\r\n]*")
# Longest token that a cut can leave half read and that a fault then points at the start of: -Infinity, \\ud83d\\ude00.
_LONGEST_TOKEN = 16


@dataclass(slots=True)
class Found:
    """One row as it stands in the file: either parsed, with its text on one line, or at fault."""

    line: int
    text: str = ""
    parsed: Parsed | None = None
    fault: RowFault | None = None
    byte_offset: int | None = None


@dataclass
class Tally:
    """What was passed over on the way."""

    n_blank_lines: int = 0
    n_inner_boms: int = 0


def scan(content: Content, max_row_bytes: int, tally: Tally) -> Iterator[Found]:
    """Every row of `content` in order. Raises UploadRefused for a row over the limit."""
    if content.is_array:
        yield from _ArrayScanner(content, max_row_bytes).rows()
    else:
        yield from _scan_lines(content, max_row_bytes, tally)


# ---------------------------------------------------------------------------------------------------------------------
# JSONL
# ---------------------------------------------------------------------------------------------------------------------


def _scan_lines(content: Content, max_row_bytes: int, tally: Tally) -> Iterator[Found]:
    decoder = StrictDecoder()
    offset = content.start
    for number, line in enumerate(lines_of(content.chunks, max_row_bytes), start=1):
        start, offset = offset, offset + len(line) + 1
        data = line.strip(b" \t\r")
        if data.startswith(UTF8_BOM):  # files with a mark, put one after another
            tally.n_inner_boms += 1
            data = data[len(UTF8_BOM) :].lstrip(b" \t\r")
        if not data:
            tally.n_blank_lines += 1
            continue
        found = _read_line(decoder, number, data)
        if found.byte_offset is not None:
            found.byte_offset = start + line.index(data) + found.byte_offset if content.is_utf8 else None
        yield found


def _read_line(decoder: StrictDecoder, number: int, data: bytes) -> Found:
    """Parse one line; the byte offset of a fault counts from the start of `data`."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Found(number, fault=not_utf8(data[error.start]), byte_offset=error.start)
    try:
        parsed = decoder.parse(text)
    except RowFault as fault:
        place = None if fault.position is None else len(text[: fault.position].encode())
        return Found(number, fault=fault, byte_offset=place)
    return Found(number, text, parsed, parsed.fault)


def lines_of(chunks: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """Physical lines without their line feed; the part behind the last line feed comes last if it is not empty."""
    held: list[bytes] = []
    n_held, number = 0, 1
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        held.append(first)
        n_held += len(first)
        for part in others:
            if n_held > max_bytes:
                break
            yield b"".join(held)
            held, n_held, number = [part], len(part), number + 1
        if n_held > max_bytes:
            raise row_too_long(number, max_bytes)
    if n_held:
        yield b"".join(held)


def row_too_long(line: int, max_bytes: int) -> UploadRefused:
    message = f"a row is longer than the limit of {max_bytes} bytes"
    problem = RowProblem(code="line_too_long", message=message, line=line)
    return UploadRefused("line_too_long", f"line {line}: {message}", "Split the row, or leave it out.", [problem])


def not_utf8(byte: int) -> RowFault:
    return RowFault("not_utf8", f"byte 0x{byte:02x} is not UTF-8 text; save the file as UTF-8 (it may be Windows-1252)")


# ---------------------------------------------------------------------------------------------------------------------
# JSON array
# ---------------------------------------------------------------------------------------------------------------------


class _ArrayScanner:
    """Reads elements from a growing and shrinking window of text. A syntax fault ends the reading: no way to go on."""

    def __init__(self, content: Content, max_row_bytes: int) -> None:
        self._chunks = content.chunks
        self._is_utf8 = content.is_utf8
        self._max = max_row_bytes
        self._to_text = codecs.getincrementaldecoder("utf-8")("strict")
        self._n_bytes = content.start
        self._json = StrictDecoder()
        self._text = ""
        self._at = 0
        self._line = 1
        self._has_ended = False
        self._bad_byte: Found | None = None  # where the text ends because it cannot be decoded further

    def rows(self) -> Iterator[Found]:
        try:
            yield from self._elements()
        except _Stop as stop:
            yield stop.found

    def _elements(self) -> Iterator[Found]:
        self._next()
        self._advance(self._at + 1)  # the opening bracket
        if self._next() == "]":
            self._close()
            return
        while True:
            yield self._element()
            mark = self._next()
            if mark == "]":
                self._close()
                return
            if mark != ",":
                self._stop_at_mark(mark)
            self._advance(self._at + 1)
            if self._next() == "]":
                raise _Stop(Found(self._line, fault=RowFault("trailing_comma", "a comma stands before the closing ]")))

    def _close(self) -> None:
        self._advance(self._at + 1)
        if self._next():
            message = "more text follows the JSON array; a file holds one array, or one object a line"
            raise _Stop(Found(self._line, fault=RowFault("trailing_data", message)))

    def _stop_at_mark(self, mark: str) -> None:
        if not mark:
            raise _Stop(Found(self._line, fault=RowFault("truncated", "the JSON array has no closing ]")))
        raise _Stop(
            Found(self._line, fault=RowFault("not_json", "a comma or the closing ] is missing before this place"))
        )

    def _element(self) -> Found:
        """The element at hand. Grows the window by doubling while the element may be cut by its end."""
        step = 64 * 1024
        while True:
            try:
                parsed = self._json.parse_at(self._text, self._at)
            except RowFault as fault:
                if self._bad_byte is not None and self._may_be_cut(fault):
                    raise _Stop(self._bad_byte) from None
                if self._has_ended or not self._may_be_cut(fault):
                    raise _Stop(self._located(fault)) from None
            else:
                if parsed.end < len(self._text) or self._has_ended:
                    return self._take(parsed)
            if len(self._text) - self._at > self._max:
                raise row_too_long(self._line, self._max)
            self._fill(step)
            step *= 2

    def _may_be_cut(self, fault: RowFault) -> bool:
        """Whether the window's end, rather than the file, may be at fault."""
        if fault.position is None:
            return False
        return fault.code == "truncated" or fault.position > len(self._text) - _LONGEST_TOKEN

    def _take(self, parsed: Parsed) -> Found:
        if parsed.end - self._at > self._max:
            raise row_too_long(self._line, self._max)
        raw = self._text[self._at : parsed.end]
        found = Found(self._line, _BREAKS.sub("", raw), parsed, parsed.fault)
        self._advance(parsed.end)
        return found

    def _located(self, fault: RowFault) -> Found:
        """A syntax fault with the line it is on, which may be below the one its row begins on."""
        below = self._text.count("\n", self._at, fault.position) if fault.position is not None else 0
        return Found(self._line + below, fault=fault)

    def _next(self) -> str:
        """Skip white space; the character at hand, or nothing at the end of the file."""
        while True:
            match = _SPACE.match(self._text, self._at)
            self._advance(self._at if match is None else match.end())
            if self._at == len(self._text) and self._bad_byte is not None:
                raise _Stop(self._bad_byte)
            if self._at < len(self._text) or self._has_ended:
                return self._text[self._at : self._at + 1]
            self._fill(1)

    def _advance(self, to: int) -> None:
        self._line += self._text.count("\n", self._at, to)
        self._at = to

    def _fill(self, n_wanted: int) -> None:
        """Drop what was read and add at least `n_wanted` characters, or mark the end of the file."""
        parts = [self._text[self._at :]]
        n_added = 0
        while n_added < n_wanted and not self._has_ended:
            parts.append(self._decode(next(self._chunks, b""), parts))
            n_added += len(parts[-1])
        self._text, self._at = "".join(parts), 0

    def _decode(self, chunk: bytes, before: list[str]) -> str:
        self._has_ended = not chunk
        n_pending = len(self._to_text.getstate()[0])
        try:
            text = self._to_text.decode(chunk, final=self._has_ended)
        except UnicodeDecodeError as error:
            good = error.object[: error.start].decode("utf-8")
            line = self._line + "".join(before).count("\n") + good.count("\n")
            place = self._n_bytes - n_pending + error.start if self._is_utf8 else None
            self._bad_byte = Found(line, fault=not_utf8(error.object[error.start]), byte_offset=place)
            self._has_ended = True
            return good
        self._n_bytes += len(chunk)
        return text


class _Stop(Exception):
    """Reading the array cannot go on behind this fault."""

    def __init__(self, found: Found) -> None:
        super().__init__()
        self.found = found
