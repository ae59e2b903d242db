"""Upload in every spelling of the same rows: byte-order marks, UTF-16, gzip, arrays, line ends, blank lines."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.trainer_core.data.uploads import put, refused

OK3 = [
    {"messages": [{"role": "user", "content": f"Grüße {n} 👩‍👩‍👧 ❤️"}, {"role": "assistant", "content": f"réponse {n}"}]}
    for n in range(3)
]


def jsonl(rows: list[dict[str, Any]], **options: Any) -> str:
    return "".join(json.dumps(row, ensure_ascii=False, **options) + "\n" for row in rows)


PLAIN = jsonl(OK3).encode()


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (b"\xef\xbb\xbf" + PLAIN, "byte-order mark"),
        (PLAIN.decode().encode("utf-16"), "UTF-16"),
        (b"\xff\xfe" + PLAIN.decode().encode("utf-16-le"), "UTF-16"),
        (b"\xfe\xff" + PLAIN.decode().encode("utf-16-be"), "UTF-16"),
        (gzip.compress(PLAIN), "gzip"),
        (gzip.compress(PLAIN[:50]) + gzip.compress(PLAIN[50:]), "gzip"),
        (gzip.compress(b"\xef\xbb\xbf" + PLAIN), "byte-order mark"),
        (gzip.compress(PLAIN.decode().encode("utf-16")), "UTF-16"),
        (PLAIN.replace(b"\n", b"\r\n"), None),
        (PLAIN.rstrip(b"\n"), None),
        (b"\n \n" + PLAIN.replace(b"\n", b"\n\n"), "blank"),
        (b"\xef\xbb\xbf" + PLAIN.replace(b"\n", b"\n\xef\xbb\xbf", 1), "inside"),
    ],
)
def test_every_spelling_of_the_same_rows_is_stored_alike(tmp_path: Path, content: bytes, note: str | None) -> None:
    plain, rows = put(tmp_path, PLAIN)
    other, other_rows = put(tmp_path, content)
    assert rows == other_rows == OK3
    assert (other.sha256, other.n_rows, other.size_bytes) == (plain.sha256, 3, len(PLAIN))
    assert plain.notes == []
    assert (note is None) == (not other.notes)
    assert note is None or any(note in line for line in other.notes)


def test_plain_jsonl_is_stored_byte_for_byte(tmp_path: Path) -> None:
    content = (
        '{"prompt": "👨‍👩‍👧 ❤️ 🚀","completion" : "x", "id":18446744073709552000, "price": 1.10, "n": 1E2}\n'
        '{"prompt":"\\ud83d\\ude80 \\u00e9","completion":"y"}\n'
    ).encode()
    put(tmp_path, content)
    assert (tmp_path / "stored.jsonl").read_bytes() == content


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_an_array_is_its_rows(tmp_path: Path, indent: int | None, encoding: str) -> None:
    text = json.dumps([*OK3, {"messages": OK3[0]["messages"], "price": 1.10}], ensure_ascii=False, indent=indent)
    report, rows = put(tmp_path, text.encode(encoding), "x.jsonl")
    assert report.n_rows == 4
    assert rows[:3] == OK3
    assert (tmp_path / "stored.jsonl").read_bytes().count(b"\n") == 4


def test_an_array_keeps_numbers_and_strings_as_sent(tmp_path: Path) -> None:
    put(tmp_path, b'[ {"text": "a\\n  b   c",\r\n   "x": [1.10,\n 2],\n "id": 18446744073709552000\n} \n ]\n')
    stored = (tmp_path / "stored.jsonl").read_bytes()
    assert stored == b'{"text": "a\\n  b   c","x": [1.10,2],"id": 18446744073709552000}\n'


def test_windows_1252_is_refused_with_line_and_byte(tmp_path: Path) -> None:
    good = b'{"prompt":"p","completion":"it is fine"}\n'
    bad = b'{"prompt":"p","completion":"it\x92s"}\n'
    refusal = refused(tmp_path, b"\xef\xbb\xbf\n" + good + b"  " + bad + good)
    problem = refusal.problems[0]
    assert (refusal.code, problem.line) == ("not_utf8", 3)
    assert problem.byte_offset == (tmp_path / "upload").read_bytes().index(b"\x92")
    assert "0x92" in problem.message


def test_windows_1252_in_an_array_is_refused_with_line_and_byte(tmp_path: Path) -> None:
    row = '{"prompt":"é","completion":"é"},\n'.encode()
    content = b"\xef\xbb\xbf[\n" + row * 20_000 + b'{"prompt":"p","completion":"it\x92s"}]'
    refusal = refused(tmp_path, content)
    assert refusal.code == "not_utf8"
    assert (refusal.n_problems, refusal.problems[-1].line) == (1, 20_002)
    assert refusal.problems[-1].byte_offset == content.index(b"\x92")


def test_rows_before_a_bad_byte_in_an_array_are_named_too(tmp_path: Path) -> None:
    refusal = refused(tmp_path, b'[{"text": 1},\n{"text": "t"},\n{"text": "it\x92s"}]')
    assert [(problem.code, problem.line) for problem in refusal.problems] == [("not_string", 1), ("not_utf8", 3)]


@pytest.mark.parametrize(
    ("content", "code", "word"),
    [
        (PLAIN.decode().encode("utf-16-le"), "utf16_without_bom", "UTF-16"),
        (PLAIN.decode().encode("utf-16-be"), "utf16_without_bom", "UTF-16"),
        (PLAIN.decode().encode("utf-16")[:-1], "utf16_broken", "UTF-16"),
        (
            b"\xff\xfe" + '{"text":"'.encode("utf-16-le") + b"\x3d\xd8" + '"}'.encode("utf-16-le"),
            "utf16_broken",
            "UTF-16",
        ),
        (PLAIN.decode().encode("utf-32"), "utf32_sent", "UTF-32"),
        (PLAIN[:40] + b"\0" + PLAIN[40:], "binary_sent", "zero bytes"),
    ],
)
def test_other_encodings_are_named(tmp_path: Path, content: bytes, code: str, word: str) -> None:
    refusal = refused(tmp_path, content)
    assert (refusal.code, word in refusal.message) == (code, True)
    assert refusal.hint


@pytest.mark.parametrize("content", [b"", b"\n \r\n\n", b"\xef\xbb\xbf", b"[]", b" [ \n ] \n", gzip.compress(b"")])
def test_a_file_without_rows_is_refused(tmp_path: Path, content: bytes) -> None:
    assert refused(tmp_path, content).code == "empty_file"


# ---------------------------------------------------------------------------------------------------------------------
# Round trips
# ---------------------------------------------------------------------------------------------------------------------

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=8
)
extra = st.dictionaries(
    words.filter(lambda name: name not in ("messages", "conversations", "system")), values, max_size=3
)
dialogue = st.lists(st.tuples(words, words.filter(lambda text: text.strip() != "")), min_size=1, max_size=3)


def as_row(parts: tuple[list[tuple[str, str]], dict[str, Any]]) -> dict[str, Any]:
    turns, more = parts
    messages = [
        {"role": role, "content": text}
        for pair in turns
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
    return {**{key: value for key, value in more.items() if key not in ("tools", "functions")}, "messages": messages}


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    rows=st.lists(st.tuples(dialogue, extra).map(as_row), min_size=1, max_size=5),
    spelling=st.sampled_from(["jsonl", "escaped", "array", "pretty"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    is_packed=st.booleans(),
)
def test_rows_come_back_as_they_were(
    tmp_path: Path, rows: list[dict[str, Any]], spelling: str, encoding: str, is_packed: bool
) -> None:
    text = {
        "jsonl": jsonl(rows),
        "escaped": "\n\n".join(json.dumps(row) for row in rows),
        "array": json.dumps(rows, ensure_ascii=False),
        "pretty": json.dumps(rows, indent=2),
    }[spelling]
    content = text.encode(encoding)
    report, back = put(tmp_path, gzip.compress(content) if is_packed else content)
    assert back == rows
    assert (report.n_rows, report.format) == (len(rows), "messages")
    again, _ = put(tmp_path, (tmp_path / "stored.jsonl").read_bytes())
    assert again.sha256 == report.sha256, "a normalised file is its own normal form"
