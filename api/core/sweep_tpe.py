"""Values by Optuna's tree-structured Parzen estimator, learnt from the trials so far.

Imported when the first such trial is wanted: Optuna takes 0.4 s to load, which no other start should pay.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from api.core.sweep_space import Values, choices, random_point, tidy
from api.core.sweep_specs import Space

optuna.logging.set_verbosity(optuna.logging.WARNING)

STARTUP_TRIALS = 8


@dataclass(frozen=True)
class Known:
    """A trial so far; `value` null: it has none yet, or ended without one."""

    values: Values
    value: float | None


def suggest(
    spaces: Mapping[str, Space], seed: int, number: int, known: Sequence[Known], *, greater_is_better: bool
) -> Values:
    """The values of trial `number`; the same for the same seed and history.

    The first few are random ones. A trial without a value counts as the worst so far, so that several at once do not
    crowd into one place and failing regions are left (the constant liar of Ginsbourger et al. 2010).
    """
    told = [one.value for one in known if one.value is not None]
    if len(told) < STARTUP_TRIALS or number < STARTUP_TRIALS:
        return random_point(spaces, seed, number)
    worst = min(told) if greater_is_better else max(told)
    distributions = {path: _distribution(space) for path, space in spaces.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=(seed + 7919 * number) % 2**32, n_startup_trials=0, multivariate=False
        )
        study = optuna.create_study(sampler=sampler, direction="maximize" if greater_is_better else "minimize")
    for one in known:
        study.add_trial(
            optuna.trial.create_trial(
                params={path: _inner(spaces[path], one.values[path]) for path in spaces},
                distributions=distributions,
                value=worst if one.value is None else one.value,
            )
        )
    asked = study.ask(distributions)
    return {path: _outer(spaces[path], asked.params[path]) for path in spaces}


def _distribution(space: Space) -> BaseDistribution:
    # Listed values by their place: Optuna takes no lists and objects as categories.
    if _is_listed(space):
        return CategoricalDistribution(range(len(choices(space) or ())))
    low, high = space.bounds
    if space.step is not None and space.n_steps is not None:
        high = low + (space.n_steps - 1) * space.step  # Optuna warns of a range that ends between two steps
    if space.is_int:
        return IntDistribution(int(low), int(high), log=space.log, step=int(space.step or 1))
    step = None if space.step is None else float(space.step)
    return FloatDistribution(float(low), float(high), log=space.log, step=step)


def _is_listed(space: Space) -> bool:
    return space.values is not None or space.n_points is not None


def _inner(space: Space, value: Any) -> Any:
    return (choices(space) or []).index(value) if _is_listed(space) else value


def _outer(space: Space, value: Any) -> Any:
    if _is_listed(space):
        return (choices(space) or [])[value]
    return tidy(space, value)
