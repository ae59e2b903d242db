"""What the ranks of a run tell each other: small whole numbers, over gloo, so that no device is ever waited for.

Knows torch.distributed only; nothing of models or of the Trainer.
"""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist


class Ranks:
    """The process group's own small channel. With one process every call answers at once."""

    def __init__(self, timeout_s: float) -> None:
        self.world_size = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        # Beside NCCL a gloo group: a NCCL answer would make the CPU wait for the device at every step.
        beside_nccl = self.world_size > 1 and dist.get_backend() != "gloo"
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s)) if beside_nccl else None

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def any_of(self, *flags: bool) -> list[bool]:
        """For each flag: is it up on any rank? The answer is the same on all."""
        if self.world_size == 1:
            return list(flags)
        numbers = torch.tensor([int(flag) for flag in flags])
        dist.all_reduce(numbers, op=dist.ReduceOp.MAX, group=self._group)
        return [bool(number) for number in numbers.tolist()]

    def gather(self, *numbers: int) -> list[list[int]]:
        """Every rank's numbers, in rank order."""
        if self.world_size == 1:
            return [list(numbers)]
        mine = torch.tensor(numbers, dtype=torch.int64)
        everyone = [torch.empty_like(mine) for _ in range(self.world_size)]
        dist.all_gather(everyone, mine, group=self._group)
        return [row.tolist() for row in everyone]

    def sum_floats(self, *numbers: float) -> list[float]:
        """The sums over all ranks, in double precision."""
        sums = torch.tensor(numbers, dtype=torch.float64)
        if self.world_size > 1:
            dist.all_reduce(sums, group=self._group)
        return sums.tolist()

    def texts(self, text: str) -> list[str]:
        """Every rank's text, in rank order."""
        if self.world_size == 1:
            return [text]
        everyone: list[str] = [""] * self.world_size
        dist.all_gather_object(everyone, text, group=self._group)
        return everyone

    def wait_for_all(self) -> None:
        if self.world_size > 1:
            dist.barrier(group=self._group)
