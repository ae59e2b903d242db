"""Files that are no dataset, the limits, and reading stored rows back."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from tests.trainer_core.data.uploads import GOOD, put, refused
from trainer_core.data.rows import Limits, UploadRefused, normalise, read_rows


def tar_with(member: tarfile.TarInfo, format: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        archive.addfile(member)
    return out.getvalue()


def link(kind: bytes, name: str = "d", to: str = "/tmp") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, to
    return member


def zip_with(*names: str, content: bytes = b"x") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, content)
    return out.getvalue()


TAR = tar_with(tarfile.TarInfo("../../x.jsonl"))
OLD_TAR = bytearray(TAR)
OLD_TAR[257:265] = b"\0" * 8
OLD_TAR[148:156] = b" " * 8
OLD_TAR[148:156] = f"{sum(OLD_TAR[:512]):06o}\0 ".encode()


@pytest.mark.parametrize(
    ("content", "code", "word"),
    [
        (zip_with("../../x.jsonl"), "archive_sent", "ZIP"),
        (zip_with("a.jsonl", "A.jsonl"), "archive_sent", "ZIP"),
        (zip_with("in.zip", content=zip_with("x.jsonl")), "archive_sent", "ZIP"),
        (zip_with("zeros", content=bytes(5_000_000)), "archive_sent", "ZIP"),
        (zip_with(), "archive_sent", "ZIP"),
        (zip_with("[Content_Types].xml", "xl/workbook.xml"), "spreadsheet_sent", "Excel"),
        (zip_with("archive/data.pkl"), "pickle_sent", "PyTorch"),
        (TAR, "archive_sent", "tar"),
        (bytes(OLD_TAR), "archive_sent", "tar"),
        (tar_with(link(tarfile.SYMTYPE)), "archive_sent", "tar"),
        (tar_with(link(tarfile.LNKTYPE)), "archive_sent", "tar"),
        (tar_with(link(tarfile.CHRTYPE, "dev")), "archive_sent", "tar"),
        (tar_with(tarfile.TarInfo("/tmp/x.jsonl"), tarfile.USTAR_FORMAT), "archive_sent", "tar"),
        (gzip.compress(TAR), "archive_sent", "inside gzip"),
        (gzip.compress(gzip.compress(GOOD.encode())), "nested_gzip", "another gzip"),
        (b"PAR1" + bytes(20) + b"PAR1", "parquet_sent", "Parquet"),
        (pickle.dumps([{"prompt": "p"}], protocol=4), "pickle_sent", "pickle"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(100), "spreadsheet_sent", "Excel"),
        (b"\x28\xb5\x2f\xfd" + bytes(20), "compression_sent", "zstd"),
        (b"SQLite format 3\0" + bytes(100), "binary_sent", "SQLite"),
        (b"Save time and effort.\nTrain at home.\n", "text_sent", "plain text"),
        (gzip.compress(GOOD.encode() * 9) + b"garbage", "gzip_trailing_data", "follow"),
        (gzip.compress(GOOD.encode() * 9)[:-9], "gzip_truncated", "too early"),
        (gzip.compress(GOOD.encode() * 9)[:-8] + bytes(8), "gzip_corrupt", "damaged"),
        (gzip.compress(bytes(10_000_000)), "binary_sent", "zero bytes"),
        (gzip.compress(b" " * 10_000_000), "gzip_ratio", "200 times"),
        (gzip.compress(f"{GOOD}\n".encode() * 400_000), "gzip_ratio", "200 times"),
    ],
)
def test_files_that_are_no_dataset_are_named(tmp_path: Path, content: bytes, code: str, word: str) -> None:
    refusal = refused(tmp_path, content)
    assert (refusal.code, refusal.problems) == (code, [])
    assert word in refusal.message
    assert refusal.hint


def test_a_gzip_of_few_equal_rows_is_no_bomb(tmp_path: Path) -> None:
    report, _ = put(tmp_path, gzip.compress(f"{GOOD}\n".encode() * 50_000))
    assert report.n_rows == 50_000


@pytest.mark.parametrize(
    ("content", "limits", "code", "line"),
    [
        (f"{GOOD}\n" * 5, Limits(max_bytes=100), "too_large", None),
        (f"{GOOD}\n" * 5, Limits(max_rows=4), "too_many_rows", None),
        (f'{GOOD}\n\n{GOOD[:-2]}{"x" * 300}"}}\n', Limits(max_line_bytes=200), "line_too_long", 3),
        (f'[{GOOD},\n{GOOD[:-2]}{"x" * 300}"}}\n]', Limits(max_line_bytes=200), "line_too_long", 2),
        (f"[{GOOD},\n{GOOD[:-2]}{'x' * 300_000}", Limits(max_line_bytes=200), "line_too_long", 2),
        ("x" * 600_000, Limits(max_line_bytes=200), "line_too_long", 1),
    ],
)
def test_limits_hold(tmp_path: Path, content: str, limits: Limits, code: str, line: int | None) -> None:
    refusal = refused(tmp_path, content.encode(), limits)
    assert (refusal.code, [problem.line for problem in refusal.problems]) == (code, [line] if line else [])


def test_the_size_limit_counts_what_gzip_unpacks_to(tmp_path: Path) -> None:
    packed = gzip.compress(f"{GOOD}\n".encode() * 1000)
    assert len(packed) < 10_000
    assert refused(tmp_path, packed, Limits(max_bytes=10_000)).code == "too_large"


@pytest.mark.parametrize("spelling", ["jsonl", "array", "one column name a row"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, spelling: str) -> None:
    source = tmp_path / "upload"
    with source.open("w") as out:
        out.write("[" if spelling == "array" else "")
        for number in range(20_000):
            name = f"column{number}" if spelling.startswith("one") else "n"
            comma = "," if spelling == "array" and number else ""
            out.write(f'{comma}{{"prompt":"p","completion":"{"x" * 960}","{name}":1}}' + "\n" * (spelling != "array"))
        out.write("]" if spelling == "array" else "")
    tracemalloc.start()
    try:
        report = normalise(source, tmp_path / "stored.jsonl")
        n_rows = sum(1 for _ in read_rows(tmp_path / "stored.jsonl"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert source.stat().st_size > 19_000_000
    assert report.n_rows == n_rows == 20_000
    assert peak < 4_000_000


def test_an_old_target_survives_a_refusal(tmp_path: Path) -> None:
    put(tmp_path, GOOD.encode())
    (tmp_path / "upload").write_bytes(b"{")
    with pytest.raises(UploadRefused):
        normalise(tmp_path / "upload", tmp_path / "stored.jsonl")
    assert [row.value["prompt"] for row in read_rows(tmp_path / "stored.jsonl")] == ["p"]


def test_rows_are_read_by_number(tmp_path: Path) -> None:
    put(tmp_path, "\n".join(f'{{"text":"t{number}"}}' for number in range(10)).encode())
    stored = tmp_path / "stored.jsonl"
    assert [(row.line, row.value["text"]) for row in read_rows(stored, 3, 2)] == [(4, "t3"), (5, "t4")]
    assert [row.line for row in read_rows(stored, 8)] == [9, 10]
    assert list(read_rows(stored, 10, 5)) == list(read_rows(stored, 0, 0)) == []


@pytest.mark.parametrize("line", ["", "[1]", '{"a":1,"a":2}', '{"a"', '{"a":"\\ud800"}'])
def test_a_stored_file_that_was_tampered_with_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "stored.jsonl").write_text(f"{GOOD}\n{line}\n{GOOD}\n")
    with pytest.raises(UploadRefused) as caught:
        list(read_rows(tmp_path / "stored.jsonl"))
    assert caught.value.problems[0].line == 2
