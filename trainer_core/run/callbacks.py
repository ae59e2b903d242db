"""What happens at the Trainer's own moments: when to save and evaluate, when to stop, what is told.

Order matters: Pace follows the Trainer's flow callback and settles what is due, Watch may overrule it, Telemetry tells.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainer_core.contract import CauseCode, Evaluated, Metrics
from trainer_core.run.events import EventWriter, figures
from trainer_core.run.faults import Fault
from trainer_core.run.meters import Meters
from trainer_core.run.progress_log import ProgressLog
from trainer_core.run.ranks import Ranks
from trainer_core.run.stop import StopSign


class HasStepLoss(Protocol):
    """The part of the trainer that Watch reads: this rank's loss of the step that just ended, on the device."""

    step_loss: torch.Tensor


class Pace(TrainerCallback):
    """Evaluates wherever a checkpoint is saved, so that best is decided; saves at the last step; neither twice."""

    def __init__(self, has_eval: bool) -> None:
        self._has_eval = has_eval
        self._saved_at = self._evaluated_at = -1

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        if state.global_step >= state.max_steps:
            control.should_save = control.should_log = control.should_training_stop = True
        return self._settle(state, control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        return self._settle(state, control)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._evaluated_at = state.global_step

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._saved_at = state.global_step

    def _settle(self, state: TrainerState, control: TrainerControl) -> TrainerControl:
        step = state.global_step
        control.should_save = control.should_save and self._saved_at != step
        wants_eval = control.should_evaluate or control.should_save
        control.should_evaluate = wants_eval and self._has_eval and self._evaluated_at != step
        return control


class Watch(TrainerCallback):
    """After every step, one exchange of two bits: did a loss become NaN or infinite, and was a stop asked for?

    The Trainer's logging_nan_inf_filter would hide such a loss from the log and train on; the weights are lost by then.
    """

    def __init__(self, trainer: HasStepLoss, ranks: Ranks, stop: StopSign, events: EventWriter) -> None:
        self._trainer = trainer
        self._ranks = ranks
        self._stop = stop
        self._events = events

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        loss = float(self._trainer.step_loss)
        broken, stop_asked = self._ranks.any_of(not math.isfinite(loss), self._stop.seen())
        if broken:
            self._end_run(state, loss)
        if stop_asked:
            self._stop.accept()
        return self._obey(control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        if self._stop.request:
            control.should_save = control.should_evaluate = False
        return control

    def _obey(self, control: TrainerControl) -> TrainerControl:
        if self._stop.request:
            control.should_training_stop = True
            control.should_evaluate = False
            control.should_save = self._stop.request.save_checkpoint
        return control

    def _end_run(self, state: TrainerState, loss: float) -> None:
        self._events.emit(Metrics, step=state.global_step, epoch=state.epoch, values=figures({"loss": loss}))
        raise Fault(
            CauseCode.NON_FINITE_LOSS,
            f"The loss is {loss} at step {state.global_step}; the run ends here and saves nothing of it.",
            hint="Lower the learning rate, add warmup, or clip gradients with max_grad_norm.",
            param="training.learning_rate",
            details={"step": state.global_step},
        )


class Telemetry(TrainerCallback):
    """Turns what the Trainer logs into records, and into trainer_log.jsonl, on rank 0."""

    def __init__(self, events: EventWriter, meters: Meters, log: ProgressLog | None) -> None:
        self._events = events
        self._meters = meters
        self._log = log

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._log:
            self._log.begin(state.global_step, state.max_steps, state.log_history)
        self._meters.start_clock()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._meters.end_step()

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._meters.start_clock()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._meters.start_clock()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        values = figures({name: value for name, value in (logs or {}).items() if name != "epoch"})
        if "loss" in values:
            self._events.emit(Metrics, step=state.global_step, epoch=state.epoch, values=values)
        elif "eval_loss" in values:
            self._events.emit(Evaluated, step=state.global_step, epoch=state.epoch, values=values)
        else:
            return
        try:
            if self._log:
                self._log.append(state.global_step, state.max_steps, state.epoch, values)
        except OSError as error:
            self._events.note(f"trainer_log.jsonl could not be written: {error}", level="warning")
            self._log = None
