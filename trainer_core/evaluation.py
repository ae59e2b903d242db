"""Loss on held-out rows, averaged over real tokens and exact for any number of processes.

The Trainer's own loop takes the mean of batch means and doubles rows to fill the last round of ranks; here every row
counts once and every token weighs the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from trainer_core.ranks import Ranks
from trainer_core.stop import StopSign

IGNORED = -100

Batch = dict[str, Any]


def evaluate(
    model: torch.nn.Module,
    rows: Sequence[Any],
    collate: Callable[[list[Any]], Batch],
    to_device: Callable[[Batch], Batch],
    batch_size: int,
    ranks: Ranks,
    stop: StopSign,
) -> dict[str, float] | None:
    """eval_loss, eval_perplexity and speed; None when a stop was asked for meanwhile. Collective.

    Batch i belongs to rank i % world_size. A rank without a batch in the last round runs the first one again with no
    weight: under ZeRO-3 a forward pass is a collective, so all ranks need the same number of them.
    """
    started = time.monotonic()
    batches = [range(start, min(start + batch_size, len(rows))) for start in range(0, len(rows), batch_size)]
    n_rounds = math.ceil(len(batches) / ranks.world_size)
    loss_sum, n_tokens = 0.0, 0
    was_training = model.training
    model.eval()
    for round_ in range(n_rounds):
        if stop.agree():
            model.train(was_training)
            return None
        number = round_ * ranks.world_size + ranks.rank
        is_mine = number < len(batches)
        batch = to_device(collate([rows[i] for i in batches[number if is_mine else 0]]))
        batch_loss, batch_tokens = _loss_of(model, batch)
        if is_mine and batch_tokens:
            loss_sum += batch_loss * batch_tokens
            n_tokens += batch_tokens
    model.train(was_training)
    loss_sum, all_tokens = ranks.sum_floats(loss_sum, n_tokens)
    seconds = time.monotonic() - started
    loss = loss_sum / all_tokens if all_tokens else math.nan
    return {
        "eval_loss": loss,
        "eval_perplexity": math.exp(loss) if loss < 700 else math.inf,
        "eval_runtime": seconds,
        "eval_samples_per_second": len(rows) / seconds,
    }


def _loss_of(model: torch.nn.Module, batch: Batch) -> tuple[float, int]:
    """Mean loss over the batch's predicted tokens and how many there are; labels shift by one inside the model."""
    n_tokens = int((batch["labels"][..., 1:] != IGNORED).sum())
    with torch.no_grad():
        loss = model(**batch).loss
    return float(loss), n_tokens
