"""The body of POST /v1/sweeps: a job, what is varied in it, how the values are chosen, what judges them."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from api.core.specs import LabelKey, LabelValue, Name
from trainer_core.contract import Frozen
from trainer_core.numbers import PositiveWholeNumber, WholeNumber, as_number, as_whole

MAX_TRIALS = 1000
MAX_PARALLEL = 100
MAX_PARAMETERS = 20
MAX_VALUES = 200
MAX_STEPS = 1000
MAX_LABELS = 60  # of the 64 a job may have; the sweep's own two come on top

Search = Literal["grid", "random", "tpe"]


def _bound(value: object) -> int | float:
    """A whole number stays one: 8 and 8.0 mean different kinds of range."""
    return as_whole(value) if isinstance(value, int) else as_number(value)


Bound = Annotated[int | float, BeforeValidator(_bound)]


class Space(Frozen):
    """What one parameter may be: `values`, or a range from `min` to `max`, both included."""

    values: list[Any] | None = Field(
        default=None, min_length=1, max_length=MAX_VALUES, description="Any JSON; tried as they are."
    )
    min: Bound | None = None
    max: Bound | None = None
    log: bool = Field(default=False, description="Spread evenly over orders of magnitude.")
    step: Bound | None = Field(default=None, description="Distance of neighbouring values, counted from `min`.")
    n_points: Annotated[PositiveWholeNumber, Field(ge=2, le=MAX_VALUES)] | None = Field(
        default=None, description="grid: so many values, spread evenly from `min` to `max`."
    )
    type: Literal["int", "float"] | None = Field(
        default=None, description="null: int where `step` and both bounds are whole, float where one has a point."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Space:
        is_range = self.min is not None or self.max is not None
        if (self.values is not None) == is_range:
            raise ValueError("expected `values`, or a range with `min` and `max`, and not both")
        if self.values is not None:
            self._check_values()
        else:
            self._check_range()
        return self

    def _check_values(self) -> None:
        assert self.values is not None
        if self.log or self.step is not None or self.n_points is not None or self.type is not None:
            raise ValueError("`log`, `step`, `n_points` and `type` belong to a range, not to `values`")
        seen = [repr(value) for value in self.values]
        if len(set(seen)) != len(seen):
            raise ValueError("expected different `values`, found one twice")

    def _check_range(self) -> None:
        if self.min is None or self.max is None:
            raise ValueError("expected both `min` and `max`")
        if not self.min < self.max:
            raise ValueError(f"expected `min` under `max`, found {self.min:g} and {self.max:g}")
        if self.log and (self.min <= 0 or self.step is not None):
            raise ValueError("`log` expects `min` over 0 and no `step`")
        if self.step is not None and not 0 < self.step <= self.max - self.min:
            raise ValueError(f"expected `step` over 0 and at most max - min, found {self.step:g}")
        if self.n_steps is not None and self.n_steps > MAX_STEPS:
            raise ValueError(f"expected at most {MAX_STEPS:,} values, found {self.n_steps:,}; give a longer `step`")
        if self.step is not None and self.n_points is not None:
            raise ValueError("expected `step` or `n_points`, found both")
        self._check_type()

    def _check_type(self) -> None:
        is_whole = isinstance(self.min, int) and isinstance(self.max, int)
        if self.type is None and is_whole and self.step is None:
            raise ValueError('whole bounds without `step` may mean either: add "type": "int" or "type": "float"')
        if self.type == "int" and not (is_whole and (self.step is None or isinstance(self.step, int))):
            raise ValueError('"type": "int" expects whole `min`, `max` and `step`')

    @property
    def bounds(self) -> tuple[int | float, int | float]:
        """`min` and `max` of a range."""
        if self.min is None or self.max is None:
            raise ValueError("listed values have no bounds")
        return self.min, self.max

    @property
    def is_int(self) -> bool:
        if self.type is not None:
            return self.type == "int"
        return all(isinstance(number, int) for number in (self.min, self.max, self.step))

    @property
    def n_steps(self) -> int | None:
        """How many values a range with a step has."""
        if self.step is None or self.min is None or self.max is None:
            return None
        return math.floor((self.max - self.min) / self.step + 1e-9) + 1


class Objective(Frozen):
    """What is to become best."""

    metric: Annotated[str, StringConstraints(min_length=1, max_length=100)] = Field(
        description="Any figure that the job logs: of an evaluation (eval_loss, eval_f1_macro) or of training (loss)."
    )
    direction: Literal["minimize", "maximize"] | None = Field(
        default=None, description="null: as the method's own table says."
    )
    value: Literal["best", "last"] = Field(
        default="best", description="Which of a run's values counts: its best, as its best checkpoint, or its last."
    )


class Halving(Frozen):
    """Asynchronous successive halving (Li et al. 2018): at rungs that lie a factor apart the best part goes on."""

    type: Literal["successive_halving"] = "successive_halving"
    min_steps: Annotated[PositiveWholeNumber, Field(le=10**9, description="Step of the first rung.")]
    reduction_factor: Annotated[
        PositiveWholeNumber, Field(ge=2, le=100, description="One of so many goes on; each rung is so much later.")
    ] = 3
    min_trials: Annotated[PositiveWholeNumber, Field(ge=2, le=MAX_TRIALS)] | None = Field(
        default=None, description="Stop none before so many have reached the rung; null: reduction_factor."
    )


class SweepSpec(Frozen):
    """The body of POST /v1/sweeps. A key it does not know is refused."""

    name: Name
    job: dict[str, Any] = Field(description="The body of POST /v1/jobs that is varied.")
    parameters: dict[str, Space] = Field(
        min_length=1, max_length=MAX_PARAMETERS, description="Path in the job's body, such as training.learning_rate."
    )
    search: Search = Field(default="random", description="grid: every combination; tpe: learns from earlier trials.")
    seed: Annotated[WholeNumber, Field(ge=0, lt=2**32, description="The same seed gives the same values.")] = 0
    n_trials: Annotated[PositiveWholeNumber, Field(le=MAX_TRIALS)] | None = Field(
        default=None, description="How many jobs; grid: null is the whole grid, else its first so many."
    )
    n_parallel: Annotated[PositiveWholeNumber, Field(le=MAX_PARALLEL)] = Field(
        default=1, description="So many of its jobs are open at once, waiting or running."
    )
    objective: Objective
    early_stopping: Halving | None = None
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, max_length=MAX_LABELS, description="Of the sweep and of each of its jobs."
    )

    @model_validator(mode="after")
    def _a_number_of_trials(self) -> SweepSpec:
        if self.n_trials is None and self.search != "grid":
            raise ValueError(f"expected `n_trials`: a {self.search} search has no end of its own")
        return self
