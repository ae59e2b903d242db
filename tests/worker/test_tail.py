"""Growing files: records in order without gaps, and log lines fit for people whatever a program prints."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_core.contract import Note, PhaseChanged
from worker.tail import CHUNK_BYTES, MAX_LINE_BYTES, LogTail, RecordTail


def phase(seq: int) -> bytes:
    return PhaseChanged(seq=seq, at=datetime.now(UTC), phase="training").model_dump_json().encode() + b"\n"  # type: ignore[arg-type]


def texts(tail: LogTail, now_s: float = 0.0, *, is_last: bool = False) -> list[str]:
    lines = []
    while True:
        lines += [line.text for line in tail.read(now_s, is_last=is_last)]
        if not tail.n_bytes_left:
            return lines


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "rank0.log"


def test_a_torn_record_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tail = RecordTail(path)
    assert tail.read() == []
    path.write_bytes(phase(1) + phase(2)[:20])
    assert [record.seq for record in tail.read()] == [1]
    with open(path, "ab") as file:
        file.write(phase(2)[20:])
    assert [record.seq for record in tail.read()] == [2]


def test_an_invalid_record_is_told_of_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(phase(1) + b'{"seq": 2, "type": "unheard-of"}\n' + phase(3) + b"garbage\n\n" + phase(4) + phase(4))
    records = RecordTail(path).read()
    assert [record.seq for record in records] == [1, 2, 3, 4]
    assert isinstance(records[1], Note)
    assert records[1].level == "warning"
    assert "Record 2" in records[1].message


def test_more_records_than_a_chunk_holds_all_arrive(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    n_records = 2 * CHUNK_BYTES // len(phase(1))
    path.write_bytes(b"".join(phase(seq) for seq in range(1, n_records + 1)))
    tail, seqs = RecordTail(path), []
    while records := tail.read():
        seqs += [record.seq for record in records]
    assert seqs == list(range(1, n_records + 1))


def test_progress_updates_fold_into_the_newest(log: Path) -> None:
    log.write_bytes(b"start\n" + b"".join(b"step %d\r" % n for n in range(10_000)) + b"\nend\n")
    assert texts(LogTail(log)) == ["start", "step 0", "step 9999", "end"]


def test_a_long_progress_bar_is_seen_while_it_runs(log: Path) -> None:
    tail = LogTail(log)
    log.write_bytes(b"\r 1%\r 2%\r 3%")
    assert texts(tail, now_s=0.0) == [" 1%"]
    with open(log, "ab") as file:
        file.write(b"\r 4%\r 5%")
    assert texts(tail, now_s=0.1) == []
    with open(log, "ab") as file:
        file.write(b"\r 6%")
    assert texts(tail, now_s=0.7) == [" 5%"]
    assert texts(tail, now_s=0.8, is_last=True) == [" 6%"]


def test_windows_line_ends_give_each_line_once(log: Path) -> None:
    log.write_bytes(b"one\r\ntwo\r\n\r\nfour\r\n")
    assert texts(LogTail(log)) == ["one", "two", "", "four"]


def test_a_five_megabyte_line_is_cut_in_bounded_memory(log: Path) -> None:
    log.write_bytes(b"x" * 5_000_000 + b"\nafter\n")
    tail = LogTail(log)
    tracemalloc.start()
    long, after = texts(tail)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert after == "after"
    assert long.startswith("x" * MAX_LINE_BYTES)
    assert long.endswith("[cut: this line had 5,000,000 bytes]")
    assert peak < 4 * CHUNK_BYTES


def test_bad_bytes_colours_and_nul_are_made_readable(log: Path) -> None:
    log.write_bytes(b"\x1b[31mred\x1b[0m \xff\x00 \x1b]0;title\x07</script><b>x\ttab\n")
    assert texts(LogTail(log)) == ["red � </script><b>x\ttab"]


def test_an_unfinished_line_is_given_out_only_at_the_end(log: Path) -> None:
    log.write_bytes(b"whole\nhalf")
    tail = LogTail(log)
    assert texts(tail) == ["whole"]
    assert tail.offset == 6
    assert texts(tail, is_last=True) == ["half"]
    assert tail.offset == 10
    assert texts(tail, is_last=True) == []


@given(
    lines=st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=40), max_size=30),
    cuts=st.lists(st.integers(0, 600), max_size=6),
)
def test_a_restart_from_the_offset_neither_loses_nor_repeats(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("log") / "rank0.log"
    expected = [line for line in lines if not any(0x7F <= ord(char) <= 0x7F for char in line)]
    body = "".join(f"{line}\n" for line in expected).encode()
    seen, offset = [], 0
    for cut in [*sorted(cuts), len(body)]:
        path.write_bytes(body[:cut])
        tail = LogTail(path, offset)
        seen += texts(tail)
        offset = tail.offset
    assert seen == expected
