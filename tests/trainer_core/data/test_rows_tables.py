"""Tables at upload: delimiters, headers, quotes, ragged rows; no record is ever lost in silence."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.trainer_core.data.uploads import documented_codes, put, refused
from trainer_core.data import sources
from trainer_core.data.rows import Limits, UploadRefused, normalise

ROWS = [{"text": "Grüße, 🚀", "label": "ham"}, {"text": 'a "b"\nc;d\te', "label": "spam"}]


def table(delimiter: str = ",", end: str = "\r\n") -> str:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end)
    writer.writerows([["text", "label"], *(list(row.values()) for row in ROWS)])
    return out.getvalue()


def told(folder: Path, content: bytes | str, limits: Limits = Limits()) -> list[tuple[str, int, int | None]]:
    refusal = refused(folder, content.encode() if isinstance(content, str) else content, limits)
    assert refusal.code in documented_codes()
    return [(problem.code, problem.line, problem.byte_offset) for problem in refusal.problems]


# ---------------------------------------------------------------------------------------------------------------------
# What is taken
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_delimiter_gives_the_same_rows(tmp_path: Path, delimiter: str, end: str) -> None:
    report, rows = put(tmp_path, table(delimiter, end).encode())
    assert rows == ROWS
    assert (report.format, report.n_rows, report.labels) == ("classification", 2, {"ham": 1, "spam": 1})


@pytest.mark.parametrize(
    "content",
    [
        codecs.BOM_UTF8 + table().encode(),
        table().encode("utf-16"),
        codecs.BOM_UTF16_BE + table().encode("utf-16-be"),
        gzip.compress(table().encode()),
        gzip.compress(codecs.BOM_UTF8 + table().encode()),
        b"\n \n" + table().encode(),
        table().encode().rstrip(b"\r\n"),
        b"sep=,\r\n" + table().encode(),
        b'"sep=;"\n' + table(";").encode(),
        b"SEP=|\n" + table("|").encode(),
        b"sep=\t\n" + table("\t").encode(),
        table().encode() + b",\r\n\r\n , \r\n",
        table().replace("text,label", ' text ,"label "').encode(),
    ],
)
def test_every_spelling_of_a_table_is_stored_alike(tmp_path: Path, content: bytes) -> None:
    report, rows = put(tmp_path, content)
    assert rows == ROWS
    stored = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
    assert (tmp_path / "stored.jsonl").read_text() == stored
    assert report.format == "classification"


def test_trimmed_names_and_empty_records_are_said(tmp_path: Path) -> None:
    report, _ = put(tmp_path, b" text ,label\nt,a\n,\nu,b\n\n")
    assert (report.n_rows, report.n_blank_lines) == (2, 2)
    assert 'white space around names of columns removed: " text "' in report.notes


def test_a_real_file_with_columns_without_names_is_read_whole(tmp_path: Path, shared_data: Path) -> None:
    content = (shared_data / "sms_spam" / "spam_header_5cols.csv").read_bytes()
    report, rows = put(tmp_path, content)
    assert content.count(b"\n") == 5575
    assert report.n_rows == len(rows) == 5573 - 1
    assert list(report.columns) == ["v1", "v2", "column_3", "column_4", "column_5"]
    assert sum("column_3" in row for row in rows) == 50
    assert any("column_3 (50 rows), column_4 (12 rows), column_5 (6 rows)" in note for note in report.notes)
    assert any("names of the columns: v1, v2" in note for note in report.notes)
    with_breaks = [row["v2"] for row in rows if "\n" in row["v2"]]
    assert len(with_breaks) == 2
    expected = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    assert [(row["v1"], row["v2"]) for row in rows] == [(row["v1"], row["v2"]) for row in expected]


def test_empty_columns_without_names_are_left_out(tmp_path: Path) -> None:
    report, rows = put(tmp_path, b"text,label,,\nt,a,, \nu,b,,\n")
    assert rows == [{"text": "t", "label": "a"}, {"text": "u", "label": "b"}]
    assert "2 columns without a name and without text left out" in report.notes


@pytest.mark.parametrize(
    ("content", "format", "columns"),
    [
        ("prompt,completion\na,b\n", "prompt_completion", ["prompt", "completion"]),
        ("instruction,input,output\na,,b\n", "instruction", ["instruction", "input", "output"]),
        ("prompt,chosen,rejected\na,b,c\n", "preference", ["prompt", "chosen", "rejected"]),
        ("text\nhello\nworld\n", "text", ["text"]),
        ('"prompt"\n"a, b"\n', "prompts", ["prompt"]),
        ("question,answer\nq,a\nr,b\n", "columns", ["question", "answer"]),
        ("Frage Nr. 1;Antwort\nq;a\n", "columns", ["Frage Nr. 1", "Antwort"]),
        ("prompt,completion,label\na,b,true\n", "prompt_completion", ["prompt", "completion", "label"]),
        ("text;label\n\"a, b\";1,5\n\"c, d\";2,5\n", "classification", ["text", "label"]),
    ],
)  # fmt: skip
def test_headers_decide_the_format(tmp_path: Path, content: str, format: str, columns: list[str]) -> None:
    report, _ = put(tmp_path, content.encode())
    assert (report.format, list(report.columns)) == (format, columns)


def test_a_quote_inside_a_plain_cell_is_itself(tmp_path: Path) -> None:
    _, rows = put(tmp_path, b'text,label\na 5" screen,x\n')
    assert rows == [{"text": 'a 5" screen', "label": "x"}]


def test_cells_with_braces_are_no_json_under_a_formats_header(tmp_path: Path) -> None:
    _, rows = put(tmp_path, b"label,text\nham,Hello {name}\n{x},[INST]\n")
    assert rows == [{"label": "ham", "text": "Hello {name}"}, {"label": "{x}", "text": "[INST]"}]
    (tmp_path / "x").mkdir()
    assert told(tmp_path / "x", b'Hello, all\n{"text": "a, b"}\n')[0][:2] == ("not_json", 1)


def test_a_cell_may_be_longer_than_the_csv_modules_own_limit(tmp_path: Path) -> None:
    report, rows = put(tmp_path, b"text,label\n" + b"x" * 200_000 + b",a\n")
    assert len(rows[0]["text"]) == 200_000
    assert report.format == "classification"


# ---------------------------------------------------------------------------------------------------------------------
# What is refused
# ---------------------------------------------------------------------------------------------------------------------


def test_a_real_file_without_a_header_names_its_bad_lines_too(tmp_path: Path, shared_data: Path) -> None:
    content = (shared_data / "sms_spam" / "spam_crlf_backslash_quotes.csv").read_bytes()
    refusal = refused(tmp_path, content)
    assert [(p.code, p.line) for p in refusal.problems] == [("no_header", 1), ("bad_quotes", 99), ("bad_quotes", 2792)]
    assert refusal.code == "no_header"
    assert "lines 1, 99, 2792" in refusal.message
    assert refusal.problems[1].byte_offset == content.index(b'ham,"Hi. Wk been ok')
    assert "goes on to line 104" in refusal.problems[1].message


def test_a_real_file_with_backslashes_before_quotes_is_refused_under_a_header(
    tmp_path: Path, shared_data: Path
) -> None:
    content = (shared_data / "sms_spam" / "spam_crlf_backslash_quotes.csv").read_bytes()
    refusal = refused(tmp_path, b"label,text,,,\r\n" + content)
    assert [(p.code, p.line) for p in refusal.problems] == [("bad_quotes", 100), ("bad_quotes", 2793)]
    assert '("") and not \\"' in refusal.message
    assert "line 100" in refusal.message


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        ("text,label\na,b,c\nd,e\nf\n", [("ragged_row", 2, 11), ("ragged_row", 4, 21)]),
        ('text,label\n"a\nb",x\nc\n', [("ragged_row", 4, 19)]),
        ('text,label\n"a" b,x\nc,d\n', [("bad_quotes", 2, 11)]),
        ('text,label\na,b\n"c,d\ne,f\n', [("truncated", 3, 15)]),
        ("text,label\na\rb,c\nd,e\n", [("bad_line_break", 2, 11)]),
        ("text,label\né,b\nc\0c,d\n", [("zero_byte", 3, 17)]),
        (b"text,label\n\xc3\xa9,b\nit\x92s,d\ne,f\n", [("not_utf8", 3, 18)]),
        (b'text,label\n"a\nit\x92s",d\ne,f\n', [("not_utf8", 3, 16)]),
        (codecs.BOM_UTF8 + b"text,label\na,\x92\n", [("not_utf8", 2, 16)]),
        ("text,label\na,b\n ,c\nd,\n", [("empty_text", 3, None), ("empty_label", 4, None)]),
        ("prompt,completion\np,\n", [("empty_reply", 2, None)]),
        ("text, text\na,b\nc,d\n", [("duplicate_column", 1, 0)]),
        ("text,label\n\"it goes on\n", [("truncated", 2, 11)]),
        ("column_2,,x y\na,b,c\nd,e,f\n", [("duplicate_column", 1, 0)]),
        ("good movie!,1\nbad movie,0\n", [("no_header", 1, 0)]),
        ("1,2\n3,4\n", [("no_header", 1, 0)]),
        ("ham,hello\n" + "ham,you\n" * 6 + "spam,win,x\n", [("no_header", 1, 0), ("ragged_row", 8, 58)]),
        ("sep=;\n1;2\n3;4\n", [("no_header", 2, 6)]),
        ("\n\ntext,label\n\na\n", [("ragged_row", 5, 14)]),
        ("text,label,\"x\na,b\n", [("truncated", 1, 0)]),
    ],
)  # fmt: skip
def test_a_record_that_does_not_fit_is_named(
    tmp_path: Path, content: str | bytes, problems: list[tuple[str, int, int | None]]
) -> None:
    assert told(tmp_path, content) == problems


def test_ragged_rows_tell_both_numbers(tmp_path: Path) -> None:
    assert "found 3 fields, expected 2" in refused(tmp_path, b"text,label\na,b,c\n").message
    assert "found 1 field, expected 2" in refused(tmp_path, b"text,label\na\n").message


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("sep=x\ntext,label\na,b\n", "bad_separator"),
        ("prompt,completion\n", "empty_file"),
        ("text,label\n,\n", "empty_file"),
        ("Dear reader,\nthis is a letter.\nIt goes on.\n", "text_sent"),
        ("text\0,label\na,b\n", "binary_sent"),
        (table().encode("utf-16-le").decode("latin-1"), "binary_sent"),
    ],
)
def test_files_that_are_no_table_are_refused_whole(tmp_path: Path, content: str, code: str) -> None:
    refusal = refused(tmp_path, content.encode("latin-1"))
    assert (refusal.code, refusal.problems) == (code, [])
    assert refusal.hint
    assert code in documented_codes()


@pytest.mark.parametrize("name", ["src-val", "tgt-val", "src-train_first800", "tgt-train_first800"])
def test_real_lines_of_text_are_no_table(tmp_path: Path, shared_data: Path, name: str) -> None:
    refusal = refused(tmp_path, (shared_data / "opennmt_en_de" / f"{name}.txt").read_bytes())
    assert refusal.code == "text_sent"
    assert "completion" in str(refusal.hint)


def test_offsets_are_not_told_where_they_mean_nothing(tmp_path: Path) -> None:
    assert told(tmp_path, "text,label\na\n".encode("utf-16")) == [("ragged_row", 2, None)]


@pytest.mark.parametrize(
    ("content", "limits", "code"),
    [
        ("text,label\n" + "a,b\n" * 5, Limits(max_rows=4), "too_many_rows"),
        ('text,label\n"' + "x\n" * 300 + '",b\n', Limits(max_line_bytes=200), "line_too_long"),
        ("text,label\n" + "x" * 300 + ",b\n", Limits(max_line_bytes=200), "line_too_long"),
        ("text,label\n" + "a,b\n" * 50, Limits(max_bytes=100), "too_large"),
    ],
)
def test_limits_hold_for_tables(tmp_path: Path, content: str, limits: Limits, code: str) -> None:
    assert refused(tmp_path, content.encode(), limits).code == code


# ---------------------------------------------------------------------------------------------------------------------
# Properties
# ---------------------------------------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_a_table(tmp_path: Path) -> None:
    (tmp_path / "upload").write_text("text,label\n" + f'"{"x" * 960}",a\n' * 20_000)
    tracemalloc.start()
    try:
        report = normalise(tmp_path / "upload", tmp_path / "stored.jsonl")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (report.n_rows, report.labels) == (20_000, {"a": 20_000})
    assert peak < 4_000_000


@pytest.mark.parametrize("n_bytes", [1, 2, 3, 7])
@pytest.mark.parametrize("content", [table().encode(), b'text,label\n"a\nit\x92s",d\ne,f\n', table().encode("utf-16")])
def test_where_chunks_of_a_table_end_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, n_bytes: int
) -> None:
    def outcome() -> object:
        (tmp_path / "upload").write_bytes(content)
        try:
            return normalise(tmp_path / "upload", tmp_path / "stored.jsonl")
        except UploadRefused as refusal:
            return refusal.message, refusal.problems

    whole = outcome()
    monkeypatch.setattr(sources, "CHUNK_BYTES", n_bytes)
    assert outcome() == whole


cells = st.text(st.characters(exclude_characters="\0\r", exclude_categories=("Cs",)), max_size=20)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(cells, cells), min_size=1, max_size=8),
    delimiter=st.sampled_from([",", "\t", ";"]),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_what_a_csv_writer_writes_comes_back(
    tmp_path: Path, rows: list[tuple[str, str]], delimiter: str, end: str
) -> None:
    """Every cell as it was; only records without any text are left out, and counted."""
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator=end).writerows([("question", "answer"), *rows])
    filled = [row for row in rows if row[0].strip() or row[1].strip()]
    (tmp_path / "upload").write_text(out.getvalue(), encoding="utf-8", newline="")
    try:
        report = normalise(tmp_path / "upload", tmp_path / "stored.jsonl")
    except UploadRefused as refusal:
        # Rows may make the file look like JSON or repeat a header's name; a refusal is no loss.
        if filled and refusal.code not in {"no_header", "not_json", "text_sent", "not_an_object"}:
            raise
        return
    stored = [json.loads(line) for line in (tmp_path / "stored.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    assert [(row["question"], row["answer"]) for row in stored] == filled
    assert report.n_blank_lines == len(rows) - len(filled)
