"""The Trainer and the Judge of reward models: every pair weighs the same, on any number of processes.

The loss is that of TRL 1.16's RewardTrainer (`compute_loss`): Bradley-Terry, with the margin of Llama 2 (2307.09288,
section 3.2.2) and the centring of 2312.09244; a test holds it against RewardTrainer itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from trainer_core.contract.method_options import RewardOptions
from trainer_core.data.collate import PadCollator
from trainer_core.data.encode_rewards import Ranked
from trainer_core.trainers.evaluation import Batch, Seen
from trainer_core.trainers.trainer import RunTrainerMixin


@dataclass(frozen=True)
class RewardCollator:
    """input_ids, attention_mask, labels: (2B, T), the chosen replies first; margin: (B,) float32."""

    pad: PadCollator

    def __call__(self, rows: Sequence[Ranked]) -> Batch:
        batch: Batch = self.pad([row.chosen for row in rows] + [row.rejected for row in rows])
        return batch | {"margin": torch.tensor([row.margin for row in rows], dtype=torch.float32)}


def scores(model: torch.nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """(B,) float32 each: the scores of the chosen replies, and of the rejected ones."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    chosen, rejected = logits.squeeze(-1).float().chunk(2)
    return chosen, rejected


def losses(options: RewardOptions, chosen: torch.Tensor, rejected: torch.Tensor, margin: torch.Tensor) -> torch.Tensor:
    """(B,): one a pair."""
    by_pair = -functional.logsigmoid(chosen - rejected - margin)
    return by_pair + options.center_rewards_coefficient * (chosen + rejected) ** 2


class RewardTrainer(RunTrainerMixin):
    """The loss of a step is the mean over all its pairs on all devices."""

    def __init__(self, *, options: RewardOptions, **arguments: Any) -> None:
        self.options = options
        self._sums: torch.Tensor | None = None
        super().__init__(**arguments)
        self.loss_is_scaled_for_ga = True

    def compute_loss(
        self, model: Any, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        chosen, rejected = scores(model, inputs)
        sums = _kept(chosen.detach(), rejected.detach()).sum(0)
        self._sums = sums if self._sums is None else self._sums + sums
        total = losses(self.options, chosen, rejected, inputs["margin"]).sum()
        # Gradients are averaged over the processes afterwards.
        return total * self.accelerator.num_processes / num_items_in_batch

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> torch.Tensor | None:
        if not batch_samples:
            return None
        n_pairs = torch.tensor(sum(len(batch["margin"]) for batch in batch_samples), device=device)
        return self.accelerator.gather(n_pairs).sum()

    def _prepare_input(self, data: Any) -> Any:
        # DeepSpeed's half precision would round the margins.
        return data.to(self.args.device) if isinstance(data, torch.Tensor) else super()._prepare_input(data)

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        if "loss" in logs and self._sums is not None:
            logs |= _means(*self.ranks.sum_floats(*self._sums.tolist()))
            self._sums = None
        super().log(logs, start_time)


class RewardJudge:
    """Figures over all held-out pairs."""

    def __init__(self, options: RewardOptions) -> None:
        self._options = options

    def look(self, model: torch.nn.Module, batch: Batch, rows: Sequence[Ranked]) -> Seen:
        with torch.no_grad():
            chosen, rejected = scores(model, batch)
        total = losses(self._options, chosen, rejected, batch["margin"]).sum()
        return Seen(float(total), len(rows), _kept(chosen, rejected).tolist())

    def figures(self, loss: float, kept: Sequence[Any]) -> dict[str, float]:
        sums = torch.tensor(kept, dtype=torch.float64).sum(0)
        if not bool(sums.isfinite().all()):
            return {}  # the loss says so already
        return {f"eval_{name}": value for name, value in _means(*sums.tolist()).items()}

    def write_files(self, output: Path) -> None:
        """Nothing beside the figures."""


def _kept(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
    """(B, 4): both scores, whether the chosen reply's is greater, and 1 to count by."""
    is_right = (chosen > rejected).float()
    return torch.stack([chosen, rejected, is_right, torch.ones_like(is_right)], dim=1)


def _means(chosen: float, rejected: float, n_right: float, n_pairs: float) -> dict[str, float]:
    return {
        "accuracy": n_right / n_pairs,
        "margin": (chosen - rejected) / n_pairs,
        "mean_reward": (chosen + rejected) / (2 * n_pairs),
    }
