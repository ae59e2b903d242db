"""Whatever is sent, the answer is a report or a refusal; and where the chunks of a file end never matters."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainer_core.data import sources
from trainer_core.data.rows import DatasetReport, Limits, UploadRefused, normalise, read_rows

ROWS = [
    {
        "messages": [{"role": "user", "content": 'é🚀 \\ " {[,]}'}, {"role": "assistant", "content": "a\nb"}],
        "n": [1.5e3, -2],
    },
    {"conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "ok"}], "tools": "[]", "x": None},
    {"prompt": "p", "completion": "c", "deep": {"a": [[{"b": True}]]}},
]
SEEDS = [
    *(json.dumps(row, ensure_ascii=False).encode() for row in ROWS),
    "\n".join(json.dumps(row) for row in ROWS[:1] * 3).encode(),
    json.dumps(ROWS[2:] * 3, indent=1).encode(),
    json.dumps(ROWS[:1] * 2, ensure_ascii=False).encode("utf-16"),
    gzip.compress(json.dumps(ROWS[:1] * 2).encode()),
]
PIECES = [
    b"", b"\n", b"\r", b",", b"{", b"}", b"[", b"]", b'"', b"\\", b"\\ud83d", b"\xff", b"\x92", b"\0", b"NaN",
    b"null", b"1e999",
    b"\xef\xbb\xbf", b"\xff\xfe", b"\x1f\x8b", b"9" * 5000, b"[" * 3000, b'"role"', b'"tool_calls":[{}],',
    b"\xed\xa0\xbd",
]  # fmt: skip
edits = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 6), st.sampled_from(PIECES)), max_size=3)


def outcome(folder: Path, content: bytes, limits: Limits = Limits()) -> DatasetReport | tuple[object, ...]:
    (folder / "upload").write_bytes(content)
    (folder / "stored").unlink(missing_ok=True)
    try:
        report = normalise(folder / "upload", folder / "stored", limits)
    except UploadRefused as refusal:
        assert not (folder / "stored").exists()
        texts = [refusal.message, *(f"{p.message}{p.field}" for p in refusal.problems)]
        assert max(map(len, texts)) < 900
        "".join(texts).encode("utf-8")
        return refusal.code, refusal.n_problems, tuple((p.code, p.line, p.byte_offset) for p in refusal.problems)
    return report


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.sampled_from(SEEDS), changes=edits)
def test_a_damaged_file_is_taken_whole_or_refused(
    tmp_path: Path, seed: bytes, changes: list[tuple[int, int, bytes]]
) -> None:
    content = seed
    for at, n_cut, piece in changes:
        place = at % (len(content) + 1)
        content = content[:place] + piece + content[place + n_cut :]
    first = outcome(tmp_path, content)
    if not isinstance(first, DatasetReport):
        return
    stored = (tmp_path / "stored").read_bytes()
    assert (len(stored), stored.count(b"\n")) == (first.size_bytes, first.n_rows)
    for line in stored.decode("utf-8").split("\n")[:-1]:
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert sum(1 for _ in read_rows(tmp_path / "stored")) == first.n_rows
    again = outcome(tmp_path, stored)
    assert isinstance(again, DatasetReport)
    assert (again.sha256, again.format) == (first.sha256, first.format)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300))
def test_any_bytes_are_answered(tmp_path: Path, content: bytes) -> None:
    outcome(tmp_path, content)
    outcome(tmp_path, b'{"text":"' + content + b'"}')


BAD = [
    b'[{"text": "t"},\n{"text": 1},\n {"text": "it\x92s"}]',
    b'[{"text": "t"},\n{"text": "\\ud83d"}\n, {"text": "t",}]',
    b'[{"text": "t"} \n, \n]',
    b'[{"text": "\xc3\xa9\xc3"}]',
    b'[123, {"text": "t"}]',
    b'[{"text": 1},\n{"text": "t"}\n\n] \x92',
    b'[{"text": 1},\n{"text": "t",}, \x92',
    b'{"text":"t"}\n{"text":"it\x92s"}\n\n{"text":1}\n{"text":"cut',
    gzip.compress(b'{"text":"t"}\n') + b"junk",
    gzip.compress(b'{"text":"t"}\n')[:-3],
    b"[" * 500,
]


@pytest.mark.parametrize("content", [*SEEDS, *BAD, gzip.compress(SEEDS[3][:100]) + gzip.compress(SEEDS[3][100:])])
@pytest.mark.parametrize("n_bytes", [1, 2, 3, 7, 64])
def test_where_chunks_end_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, n_bytes: int
) -> None:
    whole = outcome(tmp_path, content)
    stored = (tmp_path / "stored").read_bytes() if isinstance(whole, DatasetReport) else None
    monkeypatch.setattr(sources, "CHUNK_BYTES", n_bytes)
    monkeypatch.setattr(sources, "HEAD_BYTES", 16)
    assert outcome(tmp_path, content) == whole
    assert stored is None or (tmp_path / "stored").read_bytes() == stored
