"""The same training as a few plain lines of torch: each step's rows in one batch, the model's own mean loss, AdamW."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def one_batch_losses(
    model: Any, steps: Sequence[dict[str, torch.Tensor]], loss_of: Callable[[Any, dict[str, torch.Tensor]], Any]
) -> dict[int, float]:
    """Step -> loss, at a constant rate of 1e-3 and the Trainer's clipping at 1."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, weight_decay=0.0)
    model.train()
    losses = {}
    for number, batch in enumerate(steps, start=1):
        loss = loss_of(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses[number] = float(loss.detach())
    return losses


def own_loss(model: Any, batch: dict[str, torch.Tensor]) -> Any:
    return model(**batch).loss


def groups(rows: Sequence[Any]) -> list[Sequence[Any]]:
    """The rows of six steps of two epochs over 20 rows, eight rows a step and four in the last of each epoch."""
    return [rows[0:8], rows[8:16], rows[16:20]] * 2


# Two batches of two rows on each of two processes a step; constant rate; the rows in their order.
TRAINING: dict[str, Any] = {
    "max_steps": 6,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "lr_scheduler_type": "constant",
    "train_sampling_strategy": "sequential",
    "learning_rate": 1e-3,
}
