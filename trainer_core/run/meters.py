"""What a training step costs: tokens seen and tokens a second over all ranks, memory of every process.

Counting adds no wait for a device; numbers are read and exchanged at logging steps only.
"""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

import torch

from trainer_core.run.ranks import Ranks

# ru_maxrss is in kilobytes on Linux and in bytes on macOS.
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


class Meters:
    """Counts on this rank; `read` and `tokens_everywhere` are collective."""

    def __init__(self, ranks: Ranks, device: torch.device) -> None:
        self._ranks = ranks
        self._is_cuda = device.type == "cuda"
        self._fresh_tokens = torch.zeros((), dtype=torch.int64, device=device)
        self._tokens_since_read = 0
        self._busy_s = 0.0
        self._mark = time.monotonic()
        self.tokens_seen = 0

    def count(self, batches: list[dict[str, Any]]) -> None:
        """Add the tokens of these batches that are not padding."""
        for batch in batches:
            # Packed rows have no mask: their collator counts, and what it says is no input of the model.
            n_tokens = batch.pop("n_tokens", None)
            self._fresh_tokens += batch["attention_mask"].sum() if n_tokens is None else n_tokens

    def start_clock(self) -> None:
        """What passed since the last step (evaluation, saving, compiling) is no training time."""
        self._mark = time.monotonic()

    def end_step(self) -> None:
        now = time.monotonic()
        self._busy_s += now - self._mark
        self._mark = now

    def tokens_everywhere(self) -> int:
        """Collective: tokens seen by all ranks since the run began (and before it, where it was resumed)."""
        fresh = int(self._fresh_tokens.item())
        self._fresh_tokens.zero_()
        total = sum(row[0] for row in self._ranks.gather(fresh))
        self.tokens_seen += total
        self._tokens_since_read += total
        return self.tokens_seen

    def read(self) -> dict[str, float]:
        """Collective: figures since the last reading."""
        self.tokens_everywhere()
        seconds, tokens = self._busy_s, self._tokens_since_read
        self._busy_s, self._tokens_since_read = 0.0, 0
        rows = self._ranks.gather(resident_bytes(), torch.cuda.max_memory_allocated() if self._is_cuda else 0)
        values: dict[str, float] = {"tokens_seen": self.tokens_seen, "memory_bytes": max(row[0] for row in rows)}
        if seconds > 0:
            values["tokens_per_second"] = tokens / seconds
        values |= {f"memory_bytes_rank{rank}": row[0] for rank, row in enumerate(rows)}
        if self._is_cuda:
            values["device_memory_bytes"] = max(row[1] for row in rows)
            values |= {f"device_memory_bytes_rank{rank}": row[1] for rank, row in enumerate(rows)}
        return values


def resident_bytes() -> int:
    """The most memory this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_UNIT
