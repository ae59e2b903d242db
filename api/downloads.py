"""The one place that answers a file: Range, ETag, If-None-Match, If-Range, HEAD, names in headers, safe content types.

It knows pinned bytes, not where they come from. Files that still grow are never answered from here.
"""

from __future__ import annotations

import re
import secrets
import unicodedata
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from urllib.parse import quote

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from api.core.storage import Pinned

MAX_RANGES = 16
OCTETS = "application/octet-stream"
# Shown by a browser in place. What a page could be scripted with (HTML, SVG, XML) is plain text here.
MEDIA_TYPES = {
    "json": "application/json",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
}
TEXTS = frozenset({"txt", "log", "md", "jsonl", "ndjson", "csv", "tsv", "yaml", "yml", "toml", "py", "jinja"})
MARKUP = frozenset({"html", "htm", "xhtml", "svg", "xml", "js", "css"})
# A file of a run must not script the dashboard, whatever is in it and however it is opened.
SAFETY = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}


@dataclass(frozen=True)
class Download:
    """How a body is to be answered. `etag` is strong: the same tag means the same bytes."""

    filename: str
    etag: str | None = None
    media_type: str = OCTETS
    is_inline: bool = False
    sha256: str | None = None
    has_ranges: bool = True

    def headers(self) -> dict[str, str]:
        headers = dict(SAFETY)
        headers["Content-Disposition"] = disposition(self.filename, is_inline=self.is_inline)
        headers["Accept-Ranges"] = "bytes" if self.has_ranges else "none"
        if self.etag is not None:
            headers["ETag"] = f'"{self.etag}"'
        if self.sha256 is not None:
            headers["Repr-Digest"] = f"sha-256=:{b64encode(bytes.fromhex(self.sha256)).decode()}:"
        return headers


def media_type(path: str) -> str:
    """The content type a file is answered with, by its extension and from a short list."""
    extension = path.rpartition(".")[2].lower()
    if extension in TEXTS or extension in MARKUP:
        return "text/plain; charset=utf-8"
    return MEDIA_TYPES.get(extension, OCTETS)


def is_current(request: Request, etag: str) -> bool:
    """Whether If-None-Match says that the client has these bytes already."""
    sent = request.headers.get("if-none-match")
    return sent is not None and (sent.strip() == "*" or f'"{etag}"' in re.findall(r'"[^"]*"', sent))


def answer(request: Request, body: Pinned, download: Download) -> Response:
    """Answer `body`, or the part of it that was asked for, and close it when the last byte is sent or nobody reads."""
    headers = download.headers()
    if download.etag is not None and is_current(request, download.etag):
        body.close()
        kept = {name: value for name, value in headers.items() if not name.startswith("Content-Disp")}
        return Response(status_code=304, headers=kept)
    ranges = _ranges(request, body.size_bytes, download)
    if ranges == []:
        body.close()
        return Response(status_code=416, headers={"Content-Range": f"bytes */{body.size_bytes}"} | SAFETY)
    status, length, parts = _parts(headers, body, download, ranges)
    headers["Content-Length"] = str(length)
    if request.method == "HEAD":
        body.close()
        return Response(status_code=status, headers=headers)
    return StreamingResponse(_sent(parts, body), status_code=status, headers=headers)


def _parts(
    headers: dict[str, str], body: Pinned, download: Download, ranges: list[tuple[int, int]] | None
) -> tuple[int, int, Iterator[bytes]]:
    """Status, length and bytes of the answer; the type and range headers are set on the way."""
    headers["Content-Type"] = download.media_type
    if ranges is None:
        return 200, body.size_bytes, body.read()
    if len(ranges) == 1:
        start, end = ranges[0]
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{body.size_bytes}"
        return 206, end - start, body.read(start, end)
    boundary = secrets.token_hex(16)
    headers["Content-Type"] = f"multipart/byteranges; boundary={boundary}"
    heads = [
        f"\r\n--{boundary}\r\nContent-Type: {download.media_type}\r\n"
        f"Content-Range: bytes {start}-{end - 1}/{body.size_bytes}\r\n\r\n".encode()
        for start, end in ranges
    ]
    tail = f"\r\n--{boundary}--\r\n".encode()
    length = sum(map(len, heads)) + sum(end - start for start, end in ranges) + len(tail)
    return 206, length, _multipart(body, ranges, heads, tail)


def _multipart(body: Pinned, ranges: list[tuple[int, int]], heads: list[bytes], tail: bytes) -> Iterator[bytes]:
    for head, (start, end) in zip(heads, ranges, strict=True):
        yield head
        yield from body.read(start, end)
    yield tail


async def _sent(parts: Iterator[bytes], body: Pinned) -> AsyncIterator[bytes]:
    """The parts, each read by a worker thread: a slow disk stops one download and not the event loop."""
    try:
        while (chunk := await to_thread.run_sync(next, parts, None)) is not None:
            yield chunk
    finally:
        body.close()


def _ranges(request: Request, size: int, download: Download) -> list[tuple[int, int]] | None:
    """Half-open ranges asked for; None: answer everything; empty: none of them can be satisfied (416).

    As RFC 9110 has it, a Range that is malformed, of another unit, too fragmented or made for other bytes (If-Range)
    is ignored. Ranges that overlap or touch are answered as one.
    """
    sent = request.headers.get("range", "")
    unit, _, specs = sent.partition("=")
    if not download.has_ranges or unit.strip().lower() != "bytes" or not specs:
        return None
    if_range = request.headers.get("if-range")
    if if_range is not None and (download.etag is None or if_range.strip() != f'"{download.etag}"'):
        return None
    parsed = [re.fullmatch(r"(\d{0,19})-(\d{0,19})", spec.strip()) for spec in specs.split(",")]
    found: list[tuple[int, int]] = []
    for match in parsed:
        if match is None or match.group() == "-":
            return None
        first, last = match.groups()
        start = int(first) if first else max(size - int(last), 0)
        end = min(int(last) + 1, size) if first and last else size
        if first and last and int(last) < int(first):
            return None
        if start < end:
            found.append((start, end))
    return _merged(found) if len(parsed) <= MAX_RANGES else None


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def disposition(filename: str, *, is_inline: bool = False) -> str:
    """Content-Disposition for any name: RFC 5987 for those who read it, an ASCII stand-in for the rest."""
    kind = "inline" if is_inline else "attachment"
    plain = unicodedata.normalize("NFKD", filename)
    ascii_name = "".join(
        character if character.isascii() and character.isprintable() and character not in '"\\/%' else "_"
        for character in plain
        if not unicodedata.combining(character)
    )
    encoded = quote(filename, safe="", errors="replace")
    return f"{kind}; filename=\"{ascii_name}\"; filename*=UTF-8''{encoded}"


def file_name(text: str, suffix: str) -> str:
    """`text` as the stem of a file name: what a file system or shell takes amiss becomes `_`; at most 255 bytes."""
    stem = re.sub(r"[\x00-\x1f\x7f/\\:*?\"<>|\ud800-\udfff]+", "_", text).strip(". ") or "file"
    return stem.encode()[: 255 - len(suffix.encode())].decode(errors="ignore") + suffix
