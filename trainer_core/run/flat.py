"""A run that learns nothing, or whose evaluation says nothing: ended or flagged, never a clean-looking curve."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainer_core.contract import CauseCode
from trainer_core.run.events import EventWriter
from trainer_core.run.faults import Fault

# Figures logged one after another. Two rows may have one loss; twenty with no gradient are no accident.
MAX_FLAT = 20
# Of an evaluation, what says how fast it was and not how good the model is.
NOT_A_FIGURE = ("runtime", "per_second", "epoch")


class Flat(TrainerCallback):
    """Looks at what is logged, which is the same on every rank, so that all of them end together.

    A gradient of exactly zero through MAX_FLAT logged figures, at a rate above zero, with a loss that stays the same
    to the last bit, ends the run; the loss alone is only told of.
    """

    def __init__(self, events: EventWriter) -> None:
        self._events = events
        self._last: float | None = None
        self._n_same = self._n_no_gradient = 0
        self._is_told = False

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not logs or "loss" not in logs or not logs.get("learning_rate"):
            return
        loss = float(logs["loss"])
        self._n_same = self._n_same + 1 if loss == self._last else 1
        self._n_no_gradient = self._n_no_gradient + 1 if float(logs.get("grad_norm", math.nan)) == 0.0 else 0
        self._last = loss
        if self._n_same < MAX_FLAT:
            return
        # A loss of 0 may be the end of learning, as with a hinge or rewards that are all alike.
        if self._n_no_gradient >= MAX_FLAT and loss != 0.0:
            raise _fault(loss, state.global_step)
        if not self._is_told:
            self._is_told = True
            message = f"The loss has been {loss} for {MAX_FLAT} logged figures, to the last bit: is anything learnt?"
            self._events.note(message, level="warning", cause=CauseCode.LOSS_FLAT.value)


class Unsaid:
    """Tells once of evaluations without a finite figure."""

    def __init__(self, events: EventWriter) -> None:
        self._events = events
        self._is_told = False

    def look(self, metrics: Mapping[str, float], step: int) -> None:
        figures = {name: value for name, value in metrics.items() if not name.endswith(NOT_A_FIGURE)}
        if self._is_told or any(math.isfinite(value) for value in figures.values()):
            return
        self._is_told = True
        message = (
            f"The evaluation at step {step} yields no figure that is a number (found {', '.join(figures) or 'none'}), "
            "so no checkpoint can be told to be the best. See whether the held-out rows have labels."
        )
        self._events.note(message, level="error", cause=CauseCode.NO_TRAINABLE_TOKENS.value)


def _fault(loss: float, step: int) -> Fault:
    return Fault(
        CauseCode.LOSS_FLAT,
        f"The loss has been {loss} and the gradient exactly 0 for {MAX_FLAT} logged figures, up to step {step}: "
        "nothing is learnt.",
        hint="See whether what is trained takes part in the loss: frozen or detached layers, labels that are all one.",
        details={"step": step},
    )
