"""The Trainer and the Judge of preference training: every pair weighs the same, on any number of processes.

The reference is the model before its first step, read once for all rows: no second model is held, whatever is trained.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from trainer_core.contract.method_options import PreferenceOptions
from trainer_core.data.collate import PadCollator
from trainer_core.data.encode_preferences import Preferred
from trainer_core.run.beginning import Run
from trainer_core.trainers.evaluation import Batch, Seen
from trainer_core.trainers.preference_loss import Scored, log_probabilities, score
from trainer_core.trainers.trainer import RunTrainerMixin


@dataclass(frozen=True)
class PreferenceCollator:
    """input_ids, attention_mask, labels: (2B, T), the chosen replies first; reference: (B, 2) float32."""

    pad: PadCollator

    def __call__(self, rows: Sequence[Preferred]) -> Batch:
        batch: Batch = self.pad([row.chosen for row in rows] + [row.rejected for row in rows])
        return batch | {"reference": torch.tensor([row.reference for row in rows], dtype=torch.float32)}


def read(model: torch.nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability and number of tokens of each reply in the batch."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
    return log_probabilities(logits, batch["labels"])


def with_reference(run: Run, model: torch.nn.Module, collate: Callable[..., Batch], rows: Sequence[Preferred]) -> Any:
    """The rows with the model's log-probabilities of their replies. Collective: each rank reads its share.

    Raises StopAsked where a stop was asked for meanwhile.
    """
    args, ranks = run.args, run.ranks
    model.to(args.device).eval()
    found: list[list[float]] = []
    mine = range(ranks.rank, len(rows), ranks.world_size)
    for start in range(0, math.ceil(len(rows) / ranks.world_size), args.per_device_eval_batch_size):
        run.stop.leave_if_asked()  # as many times on every rank
        chosen = [rows[index] for index in mine[start : start + args.per_device_eval_batch_size]]
        if not chosen:
            continue
        batch = {name: value.to(args.device) for name, value in collate(chosen).items()}
        with torch.no_grad(), torch.autocast(args.device.type, torch.bfloat16, enabled=bool(args.bf16)):
            logps, _ = read(model, batch)
        found += torch.stack(logps.chunk(2), dim=1).tolist()
    shares = [json.loads(text) for text in ranks.texts(json.dumps(found))]
    return [
        replace(row, reference=tuple(shares[index % ranks.world_size][index // ranks.world_size]))
        for index, row in enumerate(rows)
    ]


class PreferenceTrainer(RunTrainerMixin):
    """The loss of a step is the mean over all its pairs on all devices."""

    def __init__(self, *, options: PreferenceOptions, **arguments: Any) -> None:
        self.options = options
        self._sums: torch.Tensor | None = None
        super().__init__(**arguments)
        self.loss_is_scaled_for_ga = True

    def compute_loss(
        self, model: Any, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        logps, counts = read(model, inputs)
        scored = score(self.options, logps, counts, inputs["reference"])
        sums = rewards(scored).sum(0)
        self._sums = sums if self._sums is None else self._sums + sums
        # Gradients are averaged over the processes afterwards.
        return scored.losses.sum() * self.accelerator.num_processes / num_items_in_batch

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> torch.Tensor | None:
        if not batch_samples:
            return None
        n_pairs = torch.tensor(sum(len(batch["reference"]) for batch in batch_samples), device=device)
        return self.accelerator.gather(n_pairs).sum()

    def _prepare_input(self, data: Any) -> Any:
        # DeepSpeed's half precision would round the reference.
        return data.to(self.args.device) if isinstance(data, torch.Tensor) else super()._prepare_input(data)

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        if "loss" in logs and self._sums is not None:
            chosen, rejected, n_right, n_pairs = self.ranks.sum_floats(*self._sums.tolist())
            logs |= _means(chosen, rejected, n_right, n_pairs)
            self._sums = None
        super().log(logs, start_time)


class PreferenceJudge:
    """Figures over all held-out pairs."""

    def __init__(self, options: PreferenceOptions) -> None:
        self._options = options

    def look(self, model: torch.nn.Module, batch: Batch, rows: Sequence[Preferred]) -> Seen:
        with torch.no_grad():
            logps, counts = read(model, batch)
        scored = score(self._options, logps, counts, batch["reference"])
        return Seen(float(scored.losses.sum()), len(rows), rewards(scored).tolist())

    def figures(self, loss: float, kept: Sequence[Any]) -> dict[str, float]:
        sums = torch.tensor(kept, dtype=torch.float64).sum(0)
        if not bool(sums.isfinite().all()):
            return {}  # the loss says so already
        return {f"eval_{name}": value for name, value in _means(*sums.tolist()).items()}

    def write_files(self, output: Path) -> None:
        """Nothing beside the figures."""


def rewards(scored: Scored) -> torch.Tensor:
    """(B, 4): both rewards, whether the chosen reply's is greater, and 1 to count by."""
    is_right = (scored.chosen > scored.rejected).float()
    return torch.stack([scored.chosen, scored.rejected, is_right, torch.ones_like(is_right)], dim=1)


def _means(chosen: float, rejected: float, n_right: float, n_pairs: float) -> dict[str, float]:
    return {
        "rewards/chosen": chosen / n_pairs,
        "rewards/rejected": rejected / n_pairs,
        "rewards/margins": (chosen - rejected) / n_pairs,
        "rewards/accuracies": n_right / n_pairs,
    }
