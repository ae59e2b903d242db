"""Which checkpoints to keep: the best ones and the last ones, as two separate promises. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from trainer_core.contract import Retention


def rank_by_metric(saved: Mapping[int, float | None], greater_is_better: bool) -> list[int]:
    """Steps with a finite metric, best first; of equal ones the earlier is the better."""
    finite = {step: value for step, value in saved.items() if value is not None and math.isfinite(value)}
    sign = -1 if greater_is_better else 1
    return sorted(finite, key=lambda step: (sign * finite[step], step))


def steps_to_remove(
    saved: Mapping[int, float | None], retention: Retention, greater_is_better: bool, pinned: Collection[int] = ()
) -> list[int]:
    """Steps of `saved` (step -> metric) that neither promise nor a pin keeps, oldest first."""
    best = rank_by_metric(saved, greater_is_better)[: retention.n_best]
    last = sorted(saved)[-retention.n_last :]
    kept = {*best, *last, *pinned}
    return [step for step in sorted(saved) if step not in kept]
