"""Causes of failures, and records that go on when the disk does not."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from trainer_core.contract import CauseCode, Metrics, parse_record
from trainer_core.problems import OptionsInvalid, Problem
from trainer_core.run import events as events_module
from trainer_core.run.events import EventWriter, figures
from trainer_core.run.faults import Fault, cause_of


class OutOfMemoryError(RuntimeError):
    """Of the name that torch gives it."""


def wrapped_in_another(error: Exception) -> Exception:
    outer = RuntimeError("a library gave up")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Fault(CauseCode.DATA_INVALID, "row 3", line=3), CauseCode.DATA_INVALID),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), CauseCode.GPU_OOM),
        (MemoryError(), CauseCode.HOST_OOM),
        (OSError(errno.ENOSPC, "No space left on device"), CauseCode.DISK_FULL),
        (OSError(errno.EFBIG, "File too large"), CauseCode.DISK_FULL),
        (wrapped_in_another(OSError(errno.EDQUOT, "quota")), CauseCode.DISK_FULL),
        (
            RuntimeError("while serializing: I/O error: No space left on device (os error 28)"),
            CauseCode.DISK_FULL,
        ),
        (RuntimeError("[gloo/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:3"), CauseCode.RANK_DIED),
        (OptionsInvalid([Problem("parallel.offload", "no", "conflict")]), CauseCode.CONFIG_INVALID),
        (ZeroDivisionError("division by zero"), CauseCode.INTERNAL),
        (OSError(errno.EACCES, "Permission denied"), CauseCode.INTERNAL),
    ],
)
def test_every_failure_has_its_cause(error: Exception, code: CauseCode) -> None:
    cause = cause_of(error, rank=1)
    assert cause.code is code
    assert cause.rank == 1
    assert cause.details["exception"] == type(error).__name__


def test_the_tracebacks_tail_is_kept_short() -> None:
    try:
        raise ValueError("x" * 100_000)
    except ValueError as error:
        cause = cause_of(error)
    assert len(cause.message) < 1_000
    assert len(cause.details["traceback"]) <= 4_000


def test_figures_take_numbers_of_any_library_and_drop_the_rest() -> None:
    values = figures(
        {
            "nan": math.nan,
            "up": math.inf,
            "down": np.float32(-np.inf),
            "huge": 1e400,
            "small": np.float32(0.5),
            "whole": np.int64(3),
            "flag": True,
            "text": "x",
            "a/b": 1,
            "k" * 10_000: 2.0,
        }
    )
    assert values.pop("k" * 256) == 2.0
    assert values == {
        "nan": "NaN",
        "up": "Infinity",
        "down": "-Infinity",
        "huge": "Infinity",
        "small": 0.5,
        "whole": 3.0,
        "a/b": 1.0,
    }


def read(path: Path) -> list[dict[str, object]]:
    lines = path.read_bytes().splitlines()
    for line in lines:
        parse_record(line)
    return [json.loads(line) for line in lines]


def test_a_full_disk_only_delays_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write fails half-way through a line, then for a while; afterwards the file has every line once and whole."""
    writer = EventWriter(tmp_path / "events.jsonl")
    real_write, room = os.write, [40]

    def write_while_there_is_room(file: int, content: bytes) -> int:
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        n_written = real_write(file, content[: room[0]])
        room[0] -= n_written
        return n_written

    monkeypatch.setattr(events_module.os, "write", write_while_there_is_room)
    for step in range(1, 4):
        writer.emit(Metrics, step=step, values={"loss": 1.0})
    assert (tmp_path / "events.jsonl").stat().st_size == 40
    room[0] = 10**9
    writer.emit(Metrics, step=4, values={"loss": 1.0})
    writer.close()
    records = read(tmp_path / "events.jsonl")
    assert [record["seq"] for record in records] == [1, 2, 3, 4, 5]
    assert [record["step"] for record in records[:4]] == [1, 2, 3, 4]
    assert records[4]["type"] == "note"


def test_a_disk_that_stays_full_does_not_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = EventWriter(tmp_path / "events.jsonl")

    def refuse(file: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(events_module.os, "write", refuse)
    writer.emit(Metrics, step=1, values={})
    writer.close(patience_s=0.01)
    assert (tmp_path / "events.jsonl").read_bytes() == b""


def test_other_ranks_write_nothing(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path / "events.jsonl", enabled=False)
    writer.emit(Metrics, step=1, values={})
    writer.close()
    assert not (tmp_path / "events.jsonl").exists()
