"""Held-out rows through the model, each counted once and exact for any number of processes.

The Trainer's own loop takes the mean of batch means and doubles rows to fill the last round of ranks; here every item
of the loss (a token, a row) weighs the same. What is looked at in a batch, and which figures come of it, a method's
Judge knows.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from trainer_core.run.ranks import Ranks
from trainer_core.run.stop import StopSign

IGNORED = -100

Batch = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """What one batch showed. `kept` holds one entry a row, plain JSON, for figures over all rows; it may be empty."""

    loss_sum: float
    n_items: float
    """By which the sum of all batches' losses is divided."""
    kept: Sequence[Any] = field(default=())


class Judge(Protocol):
    """A method's eyes in an evaluation."""

    def look(self, model: torch.nn.Module, batch: Batch, rows: Sequence[Any]) -> Seen:
        """One batch, as it was made of these rows. The model is the wrapped one, in eval mode; all ranks take part."""

    def figures(self, loss: float, kept: Sequence[Any]) -> dict[str, float]:
        """Figures beside eval_loss, from what was kept of all rows in their order. Called on rank 0 alone; finite
        ones only are wanted, except where the loss itself is not finite."""

    def write_files(self, output: Path) -> None:
        """After the run, on rank 0: files of the last evaluation, if there are any."""


class LanguageJudge:
    """Next-token loss, averaged over real tokens, and perplexity."""

    def look(self, model: torch.nn.Module, batch: Batch, rows: Sequence[Any]) -> Seen:
        # Labels shift by one inside the model; what a packed batch says of its tokens is no input of it.
        n_tokens = int((batch["labels"][..., 1:] != IGNORED).sum())
        with torch.no_grad():
            loss = model(**{name: value for name, value in batch.items() if name != "n_tokens"}).loss
        return Seen(float(loss) * n_tokens if n_tokens else 0.0, n_tokens)

    def figures(self, loss: float, kept: Sequence[Any]) -> dict[str, float]:
        return {"eval_perplexity": math.exp(loss) if loss < 700 else math.inf}

    def write_files(self, output: Path) -> None:
        """Nothing beside the figures."""


def evaluate(
    model: torch.nn.Module,
    rows: Sequence[Any],
    collate: Callable[[list[Any]], Batch],
    to_device: Callable[[Batch], Batch],
    batch_size: int,
    ranks: Ranks,
    stop: StopSign,
    judge: Judge,
) -> dict[str, float] | None:
    """eval_loss, the judge's figures and speed; None when a stop was asked for meanwhile. Collective.

    Batch i belongs to rank i % world_size. A rank without a batch in the last round runs the first one again with no
    weight: under ZeRO-3 a forward pass is a collective, so all ranks need the same number of them.
    """
    started = time.monotonic()
    batches = [range(start, min(start + batch_size, len(rows))) for start in range(0, len(rows), batch_size)]
    n_rounds = math.ceil(len(batches) / ranks.world_size)
    loss_sum, n_items = 0.0, 0.0
    kept: list[tuple[int, Any]] = []
    was_training = model.training
    model.eval()
    for round_ in range(n_rounds):
        if stop.agree():
            model.train(was_training)
            return None
        number = round_ * ranks.world_size + ranks.rank
        is_mine = number < len(batches)
        indexes = batches[number if is_mine else 0]
        chosen = [rows[index] for index in indexes]
        seen = judge.look(model, to_device(collate(chosen)), chosen)
        if is_mine:
            loss_sum += seen.loss_sum
            n_items += seen.n_items
            kept += zip(indexes, seen.kept, strict=False)
    model.train(was_training)
    loss_sum, all_items = ranks.sum_floats(loss_sum, n_items)
    loss = loss_sum / all_items if all_items else math.nan
    figures = _figures(judge, loss, kept, ranks)
    seconds = time.monotonic() - started
    return {
        "eval_loss": loss,
        **figures,
        "eval_runtime": seconds,
        "eval_samples_per_second": len(rows) / seconds,
    }


def _figures(judge: Judge, loss: float, kept: list[tuple[int, Any]], ranks: Ranks) -> dict[str, float]:
    """Rank 0 computes for all: the figures must be the same everywhere, and a metric may take a core's whole time."""
    everyone = [pair for text in ranks.texts(json.dumps(kept)) for pair in json.loads(text)]
    told = ""
    if ranks.is_main:
        told = json.dumps(judge.figures(loss, [entry for _, entry in sorted(everyone, key=lambda pair: pair[0])]))
    figures: dict[str, float] = json.loads(ranks.texts(told)[0])
    return figures
