"""Bad rows and bad files: what is refused, with which code, on which line, and that nothing stays behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.trainer_core.data.uploads import GOOD, put, refused
from trainer_core.data.rows import Limits, UploadRefused


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
