"""Losses of labelled rows as sums, and the Trainer that divides them by what all devices of a step hold together.

Encoder-decoder models and classifiers take the mean of their own batch whatever the Trainer tells them, although they
accept the number of items: with accumulation or several devices that is no mean over the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import torch
from torch.nn import functional

from trainer_core.trainers.trainer import RunTrainerMixin

IGNORED = -100


class SummedLoss(Protocol):
    def total(self, logits: torch.Tensor, labels: torch.Tensor, smoothing: float = 0.0) -> torch.Tensor:
        """The sum over all items, a scalar."""

    def n_items(self, labels: torch.Tensor) -> torch.Tensor:
        """What the sum is divided by to be a mean: a float32 scalar."""


class TokenLoss:
    """Cross-entropy of labels_BT (-100 is no item) under logits_BTV."""

    def total(self, logits: torch.Tensor, labels: torch.Tensor, smoothing: float = 0.0) -> torch.Tensor:
        flat_NV = logits.float().view(-1, logits.shape[-1])
        return functional.cross_entropy(
            flat_NV, labels.view(-1), ignore_index=IGNORED, label_smoothing=smoothing, reduction="sum"
        )

    def n_items(self, labels: torch.Tensor) -> torch.Tensor:
        return labels.ne(IGNORED).sum().float()


class ClassLoss:
    """One item a row. Single label: labels_B under logits_BC, weighted by class as torch does (the mean is over the
    rows' weights). Several: labels_BC of 0 and 1, each class an item; weights are those of a yes. Regression: labels_B
    and the squared error."""

    def __init__(
        self, problem: Literal["single_label", "multi_label", "regression"], weights: Sequence[float] | None = None
    ) -> None:
        self._problem = problem
        self._weights = None if weights is None else torch.tensor(weights, dtype=torch.float32)

    def total(self, logits: torch.Tensor, labels: torch.Tensor, smoothing: float = 0.0) -> torch.Tensor:
        logits = logits.float()
        weights = None if self._weights is None else self._weights.to(logits.device)
        if self._problem == "single_label":
            return functional.cross_entropy(logits, labels, weights, label_smoothing=smoothing, reduction="sum")
        if self._problem == "multi_label":
            return functional.binary_cross_entropy_with_logits(logits, labels, pos_weight=weights, reduction="sum")
        return functional.mse_loss(logits.squeeze(-1), labels, reduction="sum")

    def n_items(self, labels: torch.Tensor) -> torch.Tensor:
        if self._problem == "single_label" and self._weights is not None:
            return self._weights.to(labels.device)[labels].sum()
        return torch.tensor(float(labels.numel()), device=labels.device)


class SummedLossTrainer(RunTrainerMixin):
    """The loss of a step is the sum over all its items on all devices, divided by their number."""

    def __init__(self, *, loss: SummedLoss, **arguments: Any) -> None:
        self.summed_loss = loss
        super().__init__(compute_loss_func=self._share_of_the_mean, **arguments)

    def _share_of_the_mean(self, outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor) -> torch.Tensor:
        total = self.summed_loss.total(outputs.logits, labels, self.args.label_smoothing_factor)
        return total / num_items_in_batch

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> torch.Tensor | None:
        # The Trainer counts labels that are not -100: right for tokens, wrong for weights and for numbers to predict.
        if not batch_samples:
            return None
        n_items = torch.stack([self.summed_loss.n_items(batch["labels"]) for batch in batch_samples]).sum().to(device)
        return self.accelerator.gather(n_items).sum()

    def _prepare_input(self, data: Any) -> Any:
        # Labels are the only fractions among the inputs; DeepSpeed's half precision would round numbers to predict.
        if isinstance(data, torch.Tensor):
            return data.to(self.args.device)
        return super()._prepare_input(data)
