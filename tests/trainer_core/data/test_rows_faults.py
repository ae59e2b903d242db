"""Bad rows and bad files: what is refused, with which code, on which line, and that nothing stays behind."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from tests.trainer_core.data.test_rows_encodings import put, refused
from trainer_core.data.rows import Limits, UploadRefused, normalise, read_rows

GOOD = '{"prompt":"p","completion":"c"}'


def only(refusal: UploadRefused) -> tuple[str, int, str | None]:
    assert refusal.n_problems == len(refusal.problems) == 1
    problem = refusal.problems[0]
    assert problem.code == refusal.code
    assert f"line {problem.line}" in refusal.message
    return problem.code, problem.line, problem.field


@pytest.mark.parametrize(
    ("line", "code", "field"),
    [
        ('{"prompt":"p","completion":"called "this" there"}', "not_json", None),
        ("{'prompt':'p','completion':'c'}", "not_json", None),
        ('{"prompt":"p","completion":"a\tb"}', "not_json", None),
        ('{"prompt":"p","completion":None}', "not_json", None),
        ('{"prompt":"p","completion":"c"', "truncated", None),
        ('{"prompt":"p","completion":"c', "truncated", None),
        ('{"prompt":"p","completion":"c"},', "trailing_comma", None),
        ('{"prompt":"p","completion":"c",}', "trailing_comma", None),
        (GOOD + GOOD, "several_rows", None),
        (GOOD + " x", "trailing_data", None),
        ("12", "not_an_object", None),
        ("null", "not_an_object", None),
        ('"text"', "not_an_object", None),
        ('{"prompt":"p","completion":"c","completion":"d"}', "duplicate_key", None),
        ('{"prompt":"p","completion":"c","x":{"a":1,"a":2}}', "duplicate_key", None),
        ('{"prompt":"bad \\ud83d end","completion":"x"}', "lone_surrogate", "prompt"),
        ('{"prompt":"x","completion":"\\ude00\\ud83d"}', "lone_surrogate", "completion"),
        ('{"prompt":"x","completion":"c","extra":[{"k":"\\uD800"}]}', "lone_surrogate", "extra[0].k"),
        ('{"prompt":"x","completion":"c","\\udfff":1}', "lone_surrogate", "\\udfff"),
        ('{"prompt":"x","completion":"c","n":' + "9" * 5000 + "}", "number_too_long", None),
        ('{"prompt":"x","completion":"c","n":' + "[" * 101 + "]" * 101 + "}", "too_deep", None),
        ('{"prompt":"x","completion":"c","n":' + "[" * 100_000 + "]" * 100_000 + "}", "too_deep", None),
        ('{"prompt":"x","completion":"c","n":' + '{"a":' * 200 + "1" + "}" * 200 + "}", "too_deep", None),
        ('{"prompt":"p","completion":4}', "reply_not_string", "completion"),
        ('{"prompt":"p","completion":null}', "reply_not_string", "completion"),
        ('{"prompt":null,"completion":null}', "not_string", "prompt"),
        ('{"prompt":"p","completion":{"a":1}}', "reply_not_string", "completion"),
        ('{"prompt":"p","completion":["x"]}', "reply_not_string", "completion"),
        ('{"prompt":"p","completion":NaN}', "reply_not_string", "completion"),
        ('{"prompt":"p","completion":""}', "empty_reply", "completion"),
        ('{"prompt":"p","completion":"   \\n"}', "empty_reply", "completion"),
        ('{"prompt":7,"completion":"c"}', "not_string", "prompt"),
        ('{"prompt":"p"}', "mixed_formats", None),
        ("{}", "mixed_formats", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_bad_line_is_named(tmp_path: Path, line: str, code: str, field: str | None, place: int) -> None:
    """The same fault is found first, in the middle and last; blank lines count."""
    lines = [GOOD, GOOD]
    lines.insert(place, line)
    content = "\n\n".join(lines) + "\n"
    assert only(refused(tmp_path, content.encode())) == (code, 2 * place + 1, field)


@pytest.mark.parametrize(("line", "code"), [("[1, 2]", "not_an_object"), ('{"text":"t"}', "mixed_formats")])
def test_a_line_of_another_kind_than_the_first_is_named(tmp_path: Path, line: str, code: str) -> None:
    assert only(refused(tmp_path, f"{GOOD}\n{line}\n{GOOD}".encode())) == (code, 2, None)


@pytest.mark.parametrize(
    ("row", "code", "field"),
    [
        ('{"prompt":"p","completion":"c","completion":"d"}', "duplicate_key", None),
        ('{"prompt":"bad \\ud83d end","completion":"x"}', "lone_surrogate", "prompt"),
        ('{"prompt":"p","completion":4}', "reply_not_string", "completion"),
        ('{"prompt":"p","completion":"c","n":' + "[" * 101 + "]" * 101 + "}", "too_deep", None),
        ("[1]", "not_an_object", None),
        ("7", "not_an_object", None),
        ('{"prompt":"p"}', "mixed_formats", None),
    ],
)
def test_bad_elements_of_an_array_are_all_named(tmp_path: Path, row: str, code: str, field: str | None) -> None:
    content = "[\n" + ",\n".join([row, GOOD, row, GOOD, row]) + "\n]"
    refusal = refused(tmp_path, content.encode())
    assert [(p.code, p.line, p.field) for p in refusal.problems] == [(code, line, field) for line in (2, 4, 6)]


@pytest.mark.parametrize(
    ("content", "code", "line"),
    [
        (f"[\n{GOOD},\n{GOOD},\n]", "trailing_comma", 4),
        (f"[\n{GOOD},\n{GOOD}\n", "truncated", 4),
        (f"[\n{GOOD},\n{GOOD[:-8]}", "truncated", 3),
        (f"[\n{GOOD}\n{GOOD}\n]", "not_json", 3),
        (f"[\n{GOOD}\n]\n{GOOD}", "trailing_data", 4),
        (f"[{GOOD}],", "trailing_data", 1),
        (f'[{GOOD},\n{{"prompt":\n"a "b" c"}}]', "not_json", 3),
        (f'[{GOOD},\n{{"prompt": "a",\n}}]', "trailing_comma", 3),
        (f"[{GOOD},,{GOOD}]", "not_json", 1),
        ("[" * 200_000, "too_deep", 1),
        ("[" + "9" * 5000 + "]", "number_too_long", 1),
        ("[", "truncated", 1),
    ],
)
def test_a_broken_array_is_refused_with_its_line(tmp_path: Path, content: str, code: str, line: int) -> None:
    refusal = refused(tmp_path, content.encode())
    assert (refusal.problems[-1].code, refusal.problems[-1].line) == (code, line)


def test_a_fault_in_a_large_array_is_told_as_what_it_is(tmp_path: Path) -> None:
    """The window over the array must not be taken for the fault, nor the fault for a cut window."""
    rows = [f'{{"prompt":"p{n}","completion":"{"x" * 300}"}}' for n in range(5000)]
    rows[100] = '{"prompt": "a "quoted" word", "completion": "c"}'
    limits = Limits(max_line_bytes=1000)
    problem = refused(tmp_path, ("[" + ",\n".join(rows) + "]").encode(), limits).problems[0]
    assert (problem.code, problem.line) == ("not_json", 101)


def test_all_bad_lines_are_listed_up_to_twenty_with_the_total(tmp_path: Path) -> None:
    lines = [GOOD] * 2000
    for number in range(1500, 1550):
        lines[number - 1] = '{"prompt":"p","completion":"called "this" there"}'
    lines[1599] = '{"prompt":"p","completion":5}'
    refusal = refused(tmp_path, "\n".join(lines).encode())
    assert (refusal.code, refusal.n_problems) == ("not_json", 51)
    assert [problem.line for problem in refusal.problems] == list(range(1500, 1520))
    assert "line 1500" in refusal.message


def test_a_file_cut_before_its_end_is_refused(tmp_path: Path) -> None:
    content = f"{GOOD}\n" * 2000
    assert only(refused(tmp_path, content[:-20].encode())) == ("truncated", 2000, None)


def test_the_byte_offset_of_a_syntax_fault_counts_bytes(tmp_path: Path) -> None:
    content = f'{GOOD}\n{{"prompt":"é🚀" "completion":"c"}}\n'.encode()
    problem = refused(tmp_path, content).problems[0]
    assert problem.byte_offset == content.index(b'"completion"', len(GOOD) + 1)


def test_a_row_is_never_echoed_at_length(tmp_path: Path) -> None:
    secret = "s3cr3t" * 200
    for line in (f'{{"prompt":"p","completion":"a"{secret}"}}', f'{{"{secret}":1}}', f"{GOOD}{secret}"):
        refusal = refused(tmp_path, f"{GOOD}\n{line}\n".encode())
        assert len(refusal.problems[0].message) < 400
        assert secret[:100] not in refusal.message


def test_rows_before_the_first_that_fits_are_named_too(tmp_path: Path) -> None:
    bad = '{"question":"q"}'
    refusal = refused(tmp_path, "\n".join([bad, bad, GOOD, '{"prompt":1,"completion":"c"}', bad]).encode())
    assert [(p.line, p.code) for p in refusal.problems] == [
        (1, "mixed_formats"), (2, "mixed_formats"), (4, "not_string"), (5, "mixed_formats"),
    ]  # fmt: skip
    assert "prompt_completion" in refusal.problems[0].message


def test_many_rows_that_fit_nothing_are_listed_up_to_twenty(tmp_path: Path) -> None:
    lines = ['{"question":"q"}'] * 15 + [GOOD] + ['{"question":"q"}'] * 15
    refusal = refused(tmp_path, "\n".join(lines).encode())
    assert refusal.n_problems == 30
    assert [problem.line for problem in refusal.problems] == [*range(1, 16), *range(17, 22)]


def test_odd_column_names_are_kept_but_not_listed(tmp_path: Path) -> None:
    """PostgreSQL stores the report, and cannot store a zero character."""
    row = {"text": "a\0b", "n\0": 1, "x" * 300: 2, "ok": 3}
    report, rows = put(tmp_path, json.dumps(row).encode())
    assert rows == [row]
    assert list(report.columns) == ["text", "ok"]
    assert "not all columns" in report.notes[0]
    message = {"role": "user", "content": "u", "k\0": 1}
    chat = {"messages": [message, {"role": "assistant", "content": "a"}]}
    report, _ = put(tmp_path, json.dumps(chat).encode())
    assert report.notes == ["keys of messages that are ignored: k\\u0000"]


def test_extra_columns_do_not_matter(tmp_path: Path) -> None:
    content = (
        '{"prompt":"p","completion":"c","id":18446744073709552000,"score":NaN,"x":[Infinity,{"y":-Infinity}],"z":1e400}\n'
        '{"prompt":"p","completion":"c","id":"a","score":0.5,"text":3,"messages":null}\n'
    )
    report, rows = put(tmp_path, content.encode())
    assert report.format == "prompt_completion"
    assert rows[0] == {
        "prompt": "p", "completion": "c", "id": 18446744073709552000, "score": None,
        "x": [None, {"y": None}], "z": None,
    }  # fmt: skip
    assert report.columns["score"] == ["null", "number"]
    assert any("4 numbers" in note for note in report.notes)
    json.loads((tmp_path / "stored.jsonl").read_text().splitlines()[0], parse_constant=lambda name: pytest.fail(name))


# ---------------------------------------------------------------------------------------------------------------------
# Files that are no dataset, and limits
# ---------------------------------------------------------------------------------------------------------------------


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
        (b"prompt,completion\na,b\nc,d\n", "csv_sent", "CSV"),
        (b"\xef\xbb\xbfprompt\tcompletion\r\na\tb\r\n", "csv_sent", "tab"),
        ("prompt;completion\na;b\n".encode("utf-16"), "csv_sent", "semicolon"),
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


@pytest.mark.parametrize("name", ["spam_crlf_backslash_quotes.csv", "spam_header_5cols.csv"])
def test_real_csv_files_are_named(tmp_path: Path, shared_data: Path, name: str) -> None:
    assert refused(tmp_path, (shared_data / "sms_spam" / name).read_bytes()).code == "csv_sent"


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
