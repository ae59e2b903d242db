"""The Trainer and the Judge of methods that compare two replies: every pair weighs the same, on any number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from trainer_core.data.sides import Sides
from trainer_core.trainers.evaluation import Batch, Seen
from trainer_core.trainers.trainer import RunTrainerMixin


@dataclass(frozen=True)
class Compared:
    """One value a pair: (B,) float32 each. The chosen and the rejected reply's are what accuracies are counted by."""

    losses: torch.Tensor
    chosen: torch.Tensor
    rejected: torch.Tensor

    def figures(self) -> torch.Tensor:
        """(B, 4): both values, whether the chosen reply's is greater, and 1 to count by."""
        chosen, rejected = self.chosen.detach(), self.rejected.detach()
        is_right = (chosen > rejected).float()
        return torch.stack([chosen, rejected, is_right, torch.ones_like(is_right)], dim=1)


class Comparison(Protocol):
    """How a method compares the replies of a batch, in which the chosen ones come first: input_ids (2B, T)."""

    def compare(self, model: torch.nn.Module, batch: Batch) -> Compared:
        """The batch through the model."""

    def means(self, chosen: float, rejected: float, n_right: float, n_pairs: float) -> dict[str, float]:
        """The method's figures by name, from sums over pairs."""


class ComparingTrainer(RunTrainerMixin):
    """The loss of a step is the mean over all its pairs on all devices."""

    def __init__(self, *, comparison: Comparison, **arguments: Any) -> None:
        self.comparison = comparison
        self._sums: torch.Tensor | None = None
        super().__init__(judge=ComparingJudge(comparison), **arguments)
        self.loss_is_scaled_for_ga = True

    def compute_loss(
        self, model: Any, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        compared = self.comparison.compare(model, inputs)
        sums = compared.figures().sum(0)
        self._sums = sums if self._sums is None else self._sums + sums
        # Gradients are averaged over the processes afterwards.
        return compared.losses.sum() * self.accelerator.num_processes / num_items_in_batch

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> torch.Tensor | None:
        if not batch_samples:
            return None
        n_pairs = torch.tensor(sum(len(batch["input_ids"]) // 2 for batch in batch_samples), device=device)
        return self.accelerator.gather(n_pairs).sum()

    def _prepare_input(self, data: Any) -> Any:
        # DeepSpeed's half precision would round what a pair is compared with: a reference, a margin.
        return data.to(self.args.device) if isinstance(data, torch.Tensor) else super()._prepare_input(data)

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        if "loss" in logs and self._sums is not None:
            logs |= self.comparison.means(*self.ranks.sum_floats(*self._sums.tolist()))
            self._sums = None
        super().log(logs, start_time)


class ComparingJudge:
    """Figures over all held-out pairs."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    def look(self, model: torch.nn.Module, batch: Batch, rows: Sequence[Sides]) -> Seen:
        with torch.no_grad():
            compared = self._comparison.compare(model, batch)
        return Seen(float(compared.losses.sum()), len(rows), compared.figures().tolist())

    def figures(self, loss: float, kept: Sequence[Any]) -> dict[str, float]:
        sums = torch.tensor(kept, dtype=torch.float64).sum(0)
        if not bool(sums.isfinite().all()):
            return {}  # the loss says so already
        return {f"eval_{name}": value for name, value in self._comparison.means(*sums.tolist()).items()}

    def write_files(self, output: Path) -> None:
        """Nothing beside the figures."""
