"""From an uploaded file to a stream of UTF-8 bytes: gzip, byte-order marks, UTF-16, and files that are no dataset.

Pure: standard library only. Decides by content, never by the file's name. Holds one chunk at a time.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import BinaryIO

from trainer_core.data.foreign import refuse_foreign
from trainer_core.data.problems import UploadRefused
from trainer_core.data.report import Limits
from trainer_core.data.tables import Table, find_table, refuse_text

CHUNK_BYTES = 256 * 1024
HEAD_BYTES = 64 * 1024
GZIP_MAGIC = b"\x1f\x8b"
UTF8_BOM = codecs.BOM_UTF8


@dataclass
class Content:
    """The decoded stream. `start` is the byte offset of the first chunk; `is_utf8` says that offsets mean something."""

    chunks: Iterator[bytes]
    is_array: bool
    start: int = 0
    is_utf8: bool = True
    table: Table | None = None
    notes: list[str] = field(default_factory=list)


def open_content(file: BinaryIO, limits: Limits) -> Content:
    """Prepare `file` for reading rows. Raises UploadRefused when it holds neither JSON nor a table."""
    notes: list[str] = []
    head, chunks = _peek(_read(file), HEAD_BYTES)
    if head.startswith(GZIP_MAGIC):
        notes.append("gzip unpacked")
        head, chunks = _peek(_gunzip(chunks, limits), HEAD_BYTES)
        if head.startswith(GZIP_MAGIC):
            raise UploadRefused("nested_gzip", "the gzip file holds another gzip file", "Pack the JSONL file once.")
    refuse_foreign(head, in_gzip=bool(notes))
    chunks = _limited(chunks, limits.max_bytes)
    content = _decoded(head, chunks, notes)
    head, content.chunks = _peek(content.chunks, HEAD_BYTES)
    text = head.lstrip(b" \t\r\n")
    is_whole = len(head) < HEAD_BYTES
    # A zero byte below a table's first line is told with its line; elsewhere it means that this is no text.
    may_be_text = b"\0" not in text.split(b"\n", 1)[0]
    content.table = find_table(text, is_whole=is_whole) if may_be_text else None
    if content.table is None:
        if b"\0" in head:
            raise UploadRefused(
                "binary_sent", "the file is not text (it holds zero bytes)", "Send JSONL: one object a line."
            )
        refuse_text(text, is_whole=is_whole)
    content.is_array = text.startswith(b"[")
    return content


def _read(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def _peek(chunks: Iterator[bytes], n_bytes: int) -> tuple[bytes, Iterator[bytes]]:
    """The first `n_bytes` or a little more, and the whole stream again."""
    head: list[bytes] = []
    while sum(map(len, head)) < n_bytes and (chunk := next(chunks, b"")):
        head.append(chunk)
    return b"".join(head), chain(head, chunks)


def _gunzip(chunks: Iterable[bytes], limits: Limits) -> Iterator[bytes]:
    """Unpack one or more gzip members; at most one chunk is unpacked at a time, whatever its ratio."""
    unpacker = zlib.decompressobj(wbits=31)
    n_in = n_out = 0
    for packed in chunks:
        n_in += len(packed)
        while packed:
            if unpacker.eof:
                if not packed.startswith(GZIP_MAGIC[: len(packed)]):
                    raise UploadRefused(
                        "gzip_trailing_data", "bytes that are not gzip follow the gzip data", "Pack the file again."
                    )
                unpacker = zlib.decompressobj(wbits=31)
            try:
                unpacked = unpacker.decompress(packed, CHUNK_BYTES)
            except zlib.error as error:
                raise UploadRefused(
                    "gzip_corrupt", f"the gzip data is damaged: {error}", "Pack the file again."
                ) from None
            packed = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            n_out += len(unpacked)
            if n_out > limits.ratio_from_bytes and n_out > limits.max_ratio * n_in:
                raise UploadRefused(
                    "gzip_ratio",
                    f"the gzip file unpacks to more than {limits.max_ratio:g} times its size",
                    "Send the file without compression.",
                )
            if unpacked:
                yield unpacked
    yield from _gunzip_rest(unpacker)


def _gunzip_rest(unpacker: zlib._Decompress) -> Iterator[bytes]:
    """What zlib still holds back after the last byte of input; it must have seen the end of the member."""
    if not unpacker.eof:
        # unconsumed_tail is empty here, so what is left is bounded by zlib's own window.
        if rest := unpacker.flush():
            yield rest
        if not unpacker.eof:
            raise UploadRefused("gzip_truncated", "the gzip data ends too early", "The file was cut; send it again.")


def _limited(chunks: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    n_bytes = 0
    for chunk in chunks:
        n_bytes += len(chunk)
        if n_bytes > max_bytes:
            raise UploadRefused(
                "too_large",
                f"the content is larger than the limit of {max_bytes} bytes",
                "Split it into several files.",
            )
        yield chunk


def _decoded(head: bytes, chunks: Iterator[bytes], notes: list[str]) -> Content:
    """Byte-order marks and UTF-16. UTF-32's mark begins with UTF-16's, so it is looked at first."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise UploadRefused("utf32_sent", "the file is in UTF-32", "Save it as UTF-8.")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        notes.append("UTF-16 converted to UTF-8")
        return Content(_from_utf16(chunks), False, is_utf8=False, notes=notes)
    if head[:2] in (b"{\0", b"[\0", b"\0{", b"\0["):
        raise UploadRefused(
            "utf16_without_bom", "the file seems to be UTF-16 without a byte-order mark", "Save it as UTF-8."
        )
    if head.startswith(UTF8_BOM):
        notes.append("byte-order mark removed")
        return Content(_skip(chunks, len(UTF8_BOM)), False, start=len(UTF8_BOM), notes=notes)
    return Content(chunks, False, notes=notes)


def _skip(chunks: Iterator[bytes], n_bytes: int) -> Iterator[bytes]:
    for chunk in chunks:
        if n_bytes < len(chunk):
            yield chunk[n_bytes:]
        n_bytes = max(0, n_bytes - len(chunk))


def _from_utf16(chunks: Iterable[bytes]) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-16")("strict")
    n_before = 0
    for chunk in chain(chunks, [b""]):
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            raise UploadRefused(
                "utf16_broken",
                f"the file is UTF-16 but broken near byte {n_before + error.start}: {error.reason}",
                "Save it as UTF-8.",
            ) from None
        n_before += len(chunk)
        if text:
            yield text.encode("utf-8")
