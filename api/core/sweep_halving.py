"""Asynchronous successive halving: which rungs a run has reached with what value, and whether it goes on. Pure.

Li et al., "A System for Massively Parallel Hyperparameter Tuning" (2018): a run is judged when it reaches a rung, among
those that reached it before; nobody waits for anybody.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from api.core.sweep_specs import Halving


@dataclass(frozen=True, slots=True)
class Figure:
    """The objective as logged at a step; null: not finite."""

    step: int
    value: float | None


def rung_step(halving: Halving, rung: int) -> int:
    """The step of a rung, from 0."""
    return int(halving.min_steps * halving.reduction_factor**rung)


def objective(figures: Sequence[Figure], *, greater_is_better: bool, takes_best: bool) -> Figure | None:
    """The figure that counts: the best finite one, or the last; null where there is none."""
    if not takes_best:
        return figures[-1] if figures else None
    finite = [figure for figure in figures if figure.value is not None]
    return min(finite, key=lambda figure: _rank(figure.value, greater_is_better)) if finite else None


def at_rung(
    figures: Sequence[Figure], step: int, *, greater_is_better: bool, takes_best: bool
) -> tuple[int, float | None] | None:
    """(step, value) with which the run came to the rung: at its first figure there or past it. Null: not there yet."""
    until = next((index for index, figure in enumerate(figures) if figure.step >= step), None)
    if until is None:
        return None
    counted = objective(figures[: until + 1], greater_is_better=greater_is_better, takes_best=takes_best)
    return figures[until].step, None if counted is None else counted.value


def keeps(halving: Halving, own: float | None, others: Sequence[float | None], *, greater_is_better: bool) -> bool:
    """Whether a run that comes to a rung with `own` goes on, when `others` came there before it."""
    n_there = len(others) + 1
    if n_there < (halving.min_trials or halving.reduction_factor):
        return True
    n_kept = max(1, n_there // halving.reduction_factor)
    n_better = sum(_rank(other, greater_is_better) < _rank(own, greater_is_better) for other in others)
    return own is not None and n_better < n_kept


def _rank(value: float | None, greater_is_better: bool) -> float:
    if value is None:
        return math.inf
    return -value if greater_is_better else value


def values_at(rungs: Sequence[Sequence[dict[str, Any]]], rung: int) -> list[float | None]:
    """What the given trials came to a rung with, as far as they did."""
    return [one["value"] for reached in rungs for one in reached if one["rung"] == rung]
