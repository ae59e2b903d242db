"""Where the bytes of an upload go as they come: the file part of a form, or the whole body. Runs in worker threads."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from python_multipart.multipart import MultipartParser, parse_options_header

from api.core.errors import Invalid

MAX_FIELD_BYTES = 4096
# What browsers and HTTP libraries write for the characters that a quoted file name cannot hold (HTML, form encoding).
_ESCAPES = {"%22": '"', "%0D": "\r", "%0A": "\n"}


@dataclass(frozen=True)
class Fields:
    """The fields a form may have: one with the file, and short texts."""

    file: str = "file"
    texts: tuple[str, ...] = ("name",)


DATASET_FIELDS = Fields()


class Sink(Protocol):
    """Takes the body piece by piece. `name` is the file's name as sent, if there was one."""

    size_bytes: int

    @property
    def name(self) -> str | None: ...

    @property
    def texts(self) -> dict[str, str]:
        """The other fields that were sent."""

    def feed(self, data: bytes) -> None: ...

    def finish(self) -> None:
        """Raises Invalid when what came was no whole file."""

    def close(self) -> None: ...


class RawBody:
    """The body is the file."""

    def __init__(self, target: Path) -> None:
        self.size_bytes = 0
        self.name = None
        self.texts: dict[str, str] = {}
        self._out = target.open("wb")

    def feed(self, data: bytes) -> None:
        self._out.write(data)
        self.size_bytes += len(data)

    def finish(self) -> None:
        self._out.flush()

    def close(self) -> None:
        _close(self._out)


class DatasetForm:
    """A multipart form with one file and maybe a `name`; the file's bytes go straight to `target`."""

    def __init__(self, boundary: bytes, target: Path, known: Fields = DATASET_FIELDS) -> None:
        self.size_bytes = 0
        self._known = known
        self._out = target.open("wb")
        self._fields: dict[str, bytearray] = {}
        self._file_name: bytes | None = None
        self._part = ""
        self._header = bytearray()
        self._value = bytearray()
        self._disposition = b""
        self._is_whole = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin_part,
                "on_header_field": lambda data, start, end: self._header.extend(data[start:end]),
                "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
                "on_header_end": self._end_header,
                "on_headers_finished": self._open_part,
                "on_part_data": self._take,
                "on_end": self._end,
            },
        )

    @property
    def name(self) -> str | None:
        """The field `name`, else the file's own name."""
        if self._fields.get("name"):
            return _text(bytes(self._fields["name"]), "the field `name`")
        if not self._file_name:
            return None
        name = _text(self._file_name, "the file's name")
        return re.sub("|".join(_ESCAPES), lambda found: _ESCAPES[found.group().upper()], name, flags=re.IGNORECASE)

    @property
    def texts(self) -> dict[str, str]:
        sent = {name: bytes(value) for name, value in self._fields.items() if name != self._known.file}
        return {name: _text(value, f"the field `{name}`") for name, value in sent.items()}

    def feed(self, data: bytes) -> None:
        self._parser.write(data)

    def finish(self) -> None:
        self._parser.finalize()
        if (file := self._known.file) not in self._fields:
            raise Invalid(f"the form has no field `{file}`; send the file in it", code="file_missing", param=file)
        if not self._is_whole:
            raise Invalid("the form ends before its last boundary; send it again", code="multipart_invalid")
        self._out.flush()

    def close(self) -> None:
        _close(self._out)

    def _begin_part(self) -> None:
        self._disposition = b""

    def _end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = bytes(self._value)
        self._header.clear()
        self._value.clear()

    def _open_part(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._part = options.get(b"name", b"").decode("latin-1")
        if self._part not in (self._known.file, *self._known.texts):
            known = " and ".join(f"`{name}`" for name in (self._known.file, *self._known.texts))
            raise Invalid(
                f"the form has a field {self._part[:60]!r}; the fields are {known}",
                code="unknown_field",
                param=self._part[:60],
            )
        if self._part in self._fields:
            raise Invalid(
                f"the form has the field `{self._part}` twice; send one file a request",
                code="repeated_field",
                param=self._part,
            )
        self._fields[self._part] = bytearray()
        if self._part == self._known.file:
            self._file_name = options.get(b"filename")

    def _take(self, data: bytes, start: int, end: int) -> None:
        if self._part == self._known.file:
            self._out.write(memoryview(data)[start:end])
            self.size_bytes += end - start
            return
        field = self._fields[self._part]
        field += data[start:end]
        if len(field) > MAX_FIELD_BYTES:
            raise Invalid(f"the field `{self._part}` is longer than it can be", code="name_too_long", param=self._part)

    def _end(self) -> None:
        self._is_whole = True


def _close(out: BinaryIO) -> None:
    # A whole upload was flushed by `finish`; what a failed one still holds may not fit the disk, and is not wanted.
    with suppress(OSError):
        out.close()


def _text(sent: bytes, what: str) -> str:
    try:
        return sent.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(f"{what} is not UTF-8", code="name_invalid", param="name") from error
