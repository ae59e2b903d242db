"""output/trainer_log.jsonl: one line a logging step, for people and for the plot. Torch-free.

A convenience: the records in events.jsonl are the ones that count, so a line that cannot be written ends nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

TRAINER_LOG = "trainer_log.jsonl"


class ProgressLog:
    """Lines of step, total, loss, eval_loss, lr, epoch, percentage, elapsed and remaining (both in seconds)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._started_at = time.monotonic()
        self._first_step = 0

    def begin(self, step: int, total: int, history: Iterable[Mapping[str, Any]]) -> None:
        """Start the clock. A resumed run's earlier lines are written anew from what its checkpoint remembers."""
        self._started_at = time.monotonic()
        self._first_step = step
        for entry in history:
            if "loss" in entry or "eval_loss" in entry:
                self._write(self._line(entry["step"], total, entry.get("epoch"), entry))

    def append(self, step: int, total: int, epoch: float | None, values: Mapping[str, Any]) -> None:
        """Raises OSError when the line could not be written."""
        elapsed_s = time.monotonic() - self._started_at
        n_done = step - self._first_step
        remaining_s = round(elapsed_s / n_done * (total - step), 3) if n_done else None
        times = {"elapsed": round(elapsed_s, 3), "remaining": remaining_s}
        self._write(self._line(step, total, epoch, values) | times)

    def _line(self, step: int, total: int, epoch: float | None, values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "step": step,
            "total": total,
            "loss": values.get("loss"),
            "eval_loss": values.get("eval_loss"),
            "lr": values.get("learning_rate"),
            "epoch": epoch,
            "percentage": round(100 * step / max(total, 1), 2),
            "elapsed": None,
            "remaining": None,
        }

    def _write(self, line: Mapping[str, Any]) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")
