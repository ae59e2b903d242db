"""events.jsonl: the one way a run speaks. Rank 0 appends, one write a line; no failure of it ends a training.

Knows the contract's records and the file; it knows nothing of trainers.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainer_core.contract import Note, Phase, PhaseChanged, Record

MAX_BACKLOG_BYTES = 16 * 1024 * 1024
MAX_NAME = 256


def finite_or_word(value: Any) -> float | str | None:
    """A number as JSON can hold it: NaN and infinities as words, scalars unwrapped; None for what is no number."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def figures(values: Mapping[str, Any]) -> dict[str, float | str]:
    """Only the numbers of `values`, each as `finite_or_word` gives it; names are cut to a sane length."""
    clean = {name[:MAX_NAME]: finite_or_word(value) for name, value in values.items()}
    return {name: value for name, value in clean.items() if value is not None}


class EventWriter:
    """Appends records to events.jsonl on rank 0; on other ranks every call does nothing.

    Bytes that could not be written (a full disk) stay in memory and go out first next time, from the byte where the
    last write ended, so that the file never holds half a line followed by another.
    """

    def __init__(self, path: Path, enabled: bool = True) -> None:
        self._seq = 0
        self._backlog = bytearray()
        self._failures = 0
        self._dropped = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644) if enabled else None

    def emit(self, kind: type[Record], **fields: Any) -> None:
        """Append one record. Numbers that are not finite must have gone through `figures`."""
        if self._file is None:
            return
        if len(self._backlog) > MAX_BACKLOG_BYTES:
            self._dropped += 1
            return
        self._append(kind, **fields)
        if self._write() and self._failures:
            self._report_recovery()

    def phase(self, phase: Phase) -> None:
        self.emit(PhaseChanged, phase=phase)

    def note(self, message: str, level: str = "info", **data: Any) -> None:
        print(f"[{level}] {message}", flush=True)
        self.emit(Note, level=level, message=message, data=data)

    def close(self, patience_s: float = 5.0) -> None:
        """Try for a while to write what is left: a run's last record says how it ended."""
        if self._file is None:
            return
        deadline = time.monotonic() + patience_s
        while not self._write() and time.monotonic() < deadline:
            time.sleep(0.2)
        os.close(self._file)
        self._file = None

    def _append(self, kind: type[Record], **fields: Any) -> None:
        self._seq += 1
        record = kind(seq=self._seq, at=datetime.now(UTC), **fields)
        self._backlog += record.model_dump_json().encode() + b"\n"

    def _write(self) -> bool:
        """Write the backlog a line at a time; False if something is left."""
        assert self._file is not None
        while self._backlog:
            line_end = self._backlog.index(b"\n") + 1
            try:
                n_written = os.write(self._file, self._backlog[:line_end])
            except OSError as error:
                self._failures += 1
                if self._failures == 1:
                    print(f"events.jsonl cannot be written, records are kept in memory: {error}", file=sys.stderr)
                return False
            del self._backlog[:n_written]
        return True

    def _report_recovery(self) -> None:
        failures, dropped, self._failures, self._dropped = self._failures, self._dropped, 0, 0
        message = f"events.jsonl could not be written {failures} times; {dropped} records were lost"
        self._append(Note, level="warning", message=message, data={"failures": failures, "dropped": dropped})
        self._write()
