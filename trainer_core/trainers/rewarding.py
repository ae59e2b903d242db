"""How a reward model compares replies: by the one number it gives each.

The loss is that of TRL 1.16's RewardTrainer (`compute_loss`): Bradley-Terry, with the margin of Llama 2 (2307.09288,
section 3.2.2) and the centring of 2312.09244; a test holds it against RewardTrainer itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from trainer_core.contract.method_options import RewardOptions
from trainer_core.data.collate import PadCollator
from trainer_core.data.encode_rewards import Ranked
from trainer_core.trainers.comparing import Compared
from trainer_core.trainers.evaluation import Batch


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


@dataclass(frozen=True)
class Ranking:
    """Replies compared by their scores."""

    options: RewardOptions

    def compare(self, model: torch.nn.Module, batch: Batch) -> Compared:
        chosen, rejected = scores(model, batch)
        return Compared(losses(self.options, chosen, rejected, batch["margin"]), chosen, rejected)

    def means(self, chosen: float, rejected: float, n_right: float, n_pairs: float) -> dict[str, float]:
        return {
            "accuracy": n_right / n_pairs,
            "margin": (chosen - rejected) / n_pairs,
            "mean_reward": (chosen + rejected) / (2 * n_pairs),
        }
