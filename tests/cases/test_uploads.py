"""Files as people really send them: odd encodings, odd JSON, archives; taken alike, or refused with the reason."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.core.settings import Settings
from tests.api.files.conftest import error_of, files_below, jsonl

Upload = Callable[..., Any]
Check = Callable[[], None]
ROWS = [{"prompt": f"question {n} é 报", "completion": f"answer {n} 🚀"} for n in range(3)]
PLAIN = jsonl(ROWS)
TEXT = PLAIN.decode()


@pytest.mark.parametrize(
    "content",
    [
        codecs.BOM_UTF8 + PLAIN,
        codecs.BOM_UTF8 * 2 + PLAIN,
        gzip.compress(codecs.BOM_UTF8 + PLAIN),
        gzip.compress(TEXT.encode("utf-16")),
        codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"),
        b"".join(gzip.compress(line) for line in PLAIN.splitlines(keepends=True)),
        b"\n" + PLAIN.replace(b"\n", b"\r\n\r\n"),
        PLAIN.rstrip(b"\n"),
        b"\n".join(codecs.BOM_UTF8 + line for line in PLAIN.splitlines()),
    ],
    ids=[
        "mark",
        "mark-twice",
        "mark-in-gzip",
        "utf16-in-gzip",
        "utf16-be",
        "gzip-parts",
        "crlf",
        "no-end",
        "mark-each",
    ],
)
def test_every_spelling_of_a_file_is_stored_as_the_plain_one(upload: Upload, content: bytes) -> None:
    plain, other = upload(PLAIN).json(), upload(content, "x.jsonl.gz")
    assert other.status_code == 201, other.text
    assert (other.json()["n_rows"], other.json()["sha256"]) == (3, plain["sha256"])


@pytest.mark.parametrize(
    ("content", "code", "word"),
    [
        (TEXT.encode("utf-16-le"), "utf16_without_bom", "UTF-16"),
        (TEXT.encode("utf-16-be"), "utf16_without_bom", "UTF-16"),
        (TEXT.encode("utf-16")[:-1], "utf16_broken", "UTF-16"),
        (codecs.BOM_UTF16_LE + '{"prompt":"a\ud83d"}\n'.encode("utf-16-le", "surrogatepass"), "utf16_broken", "UTF-16"),
        (TEXT.encode("utf-32"), "utf32_sent", "UTF-32"),
        (TEXT.encode("gb18030"), "not_utf8", "line 1"),
        (PLAIN + '{"prompt":"\ud83d","completion":"x"}\n'.encode("utf-8", "surrogatepass"), "not_utf8", "line 4"),
        (PLAIN + b'{"prompt":"\xc0\xaf","completion":"x"}\n', "not_utf8", "line 4"),
        (PLAIN + b'{"prompt":"\xf4\x90\x80\x80","completion":"x"}\n', "not_utf8", "line 4"),
        (PLAIN[:-6], "not_utf8", "line 3"),
        (codecs.BOM_UTF8, "empty_file", "no rows"),
        (b"\0" * 100, "binary_sent", "zero bytes"),
    ],
    ids=[
        "utf16-le", "utf16-be", "utf16-odd", "utf16-half-pair", "utf32", "gb18030", "surrogate-bytes", "overlong",
        "beyond-unicode", "cut-in-a-character", "mark-alone", "zeros",
    ],
)  # fmt: skip
def test_an_encoding_that_is_none_of_ours_is_named(
    upload: Upload, nothing_left: Check, content: bytes, code: str, word: str
) -> None:
    error = error_of(upload(content))
    assert error["code"] == code
    assert word in error["message"]
    nothing_left()


@pytest.mark.parametrize(
    ("content", "code", "line"),
    [
        ("\n".join(json.dumps([row]) for row in ROWS), "trailing_data", 2),
        (json.dumps([ROWS]), "not_an_object", 1),
        (json.dumps(ROWS) + "\n" + json.dumps(ROWS), "trailing_data", 2),
        (json.dumps(ROWS[0], indent=1), "truncated", 1),
        (TEXT.replace("\n", "\r"), "several_rows", 1),
        (TEXT + "// the end\n", "not_json", 4),
        (TEXT + "{prompt:'a',completion:'b'}\n", "not_json", 4),
        (TEXT + "\u200b" + TEXT, "not_json", 4),
        ('{"prompt":"a","completion":"\\ude80\\ud83d"}\n', "lone_surrogate", 1),
        ('{"prompt":"a","completion":"b","k":[{"\\ud83d":1}]}\n', "lone_surrogate", 1),
        ('{"prompt":"a"}\n' + TEXT, "mixed_formats", 1),
        (TEXT + '{"prompt":"a","completion":"\\u00a0\\u3000"}\n', "empty_reply", 4),
        (TEXT + '{"prompt":"a","completion":18446744073709552000}\n', "reply_not_string", 4),
        (TEXT + '{"prompt":"a","completion":NaN}\n', "reply_not_string", 4),
        (TEXT + '{"prompt":"a","completion":"b","completion":"c"}\n', "duplicate_key", 4),
    ],
)
def test_json_that_is_no_rows_is_refused_with_its_line(
    upload: Upload, nothing_left: Check, content: str, code: str, line: int
) -> None:
    error = error_of(upload(content.encode()))
    assert (error["code"], error["details"][0]["line"]) == (code, line)
    nothing_left()


def zipped(*entries: tuple[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return file.getvalue()


def tarred(mode: str, **entry: Any) -> bytes:
    """An archive of one entry that is no plain file, and of one file that goes through it."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        member = tarfile.TarInfo("d")
        for name, value in entry.items():
            setattr(member, name, value)
        archive.addfile(member)
        inner = tarfile.TarInfo("d/trainyard-evil.jsonl")
        inner.size = len(PLAIN)
        archive.addfile(inner, io.BytesIO(PLAIN))
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        zipped(("../../trainyard-evil.jsonl", PLAIN)),
        zipped(("a.zip", zipped(("trainyard-evil.jsonl", PLAIN)))),
        zipped(("X.jsonl", PLAIN), ("x.jsonl", PLAIN)),
        zipped(("zeros", bytes(64 * 1024**2))),
        tarred("w", type=tarfile.SYMTYPE, linkname="/tmp"),
        tarred("w:gz", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
        tarred("w:bz2", type=tarfile.SYMTYPE, linkname="/tmp"),
        tarred("w:xz", type=tarfile.BLKTYPE, devmajor=8, devminor=0),
        tarred("w", name="/tmp/trainyard-evil.jsonl"),
        gzip.compress(PLAIN) + b"garbage",
        gzip.compress(PLAIN) + bytes(512),
        gzip.compress(gzip.compress(PLAIN)),
        gzip.compress(PLAIN)[:-9],
        gzip.compress(b'{"prompt":"' + b"a" * 12_000_000 + b'","completion":"b"}\n'),
        gzip.compress(b" " * 64 * 1024**2),
        codecs.BOM_UTF8 + gzip.compress(PLAIN),
    ],
    ids=[
        "zip-climbs", "zip-in-zip", "zip-case", "zip-zeros", "tar-symlink", "tar-hardlink", "tar-bz2", "tar-device",
        "tar-absolute", "gzip-garbage", "gzip-zeros", "gzip-twice", "gzip-cut", "gzip-ratio", "gzip-blank", "gzip-mark",
    ],
)  # fmt: skip
def test_no_archive_is_unpacked_and_none_leaves_anything(
    upload: Upload, nothing_left: Check, settings: Settings, content: bytes
) -> None:
    before, began_at = files_below(settings.data_dir), time.monotonic()
    error_of(upload(content, "rows.jsonl.gz"))
    assert time.monotonic() - began_at < 10
    nothing_left()
    assert files_below(settings.data_dir) == before
    assert not Path("/tmp/trainyard-evil.jsonl").exists()
