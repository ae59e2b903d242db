"""How preference training compares replies: by their log-probabilities, beside those of a reference.

The reference is the model before its first step, read once for all rows: no second model is held, whatever is trained.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from trainer_core.contract.method_options import PreferenceOptions
from trainer_core.data.collate import PadCollator
from trainer_core.data.encode_preferences import Preferred
from trainer_core.run.beginning import Run
from trainer_core.trainers.comparing import Compared
from trainer_core.trainers.evaluation import Batch
from trainer_core.trainers.preference_loss import log_probabilities, score


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


@dataclass(frozen=True)
class Preference:
    """Replies compared by how likely they are."""

    options: PreferenceOptions

    def compare(self, model: torch.nn.Module, batch: Batch) -> Compared:
        return score(self.options, *read(model, batch), batch["reference"])

    def means(self, chosen: float, rejected: float, n_right: float, n_pairs: float) -> dict[str, float]:
        return {
            "rewards/chosen": chosen / n_pairs,
            "rewards/rejected": rejected / n_pairs,
            "rewards/margins": (chosen - rejected) / n_pairs,
            "rewards/accuracies": n_right / n_pairs,
        }
