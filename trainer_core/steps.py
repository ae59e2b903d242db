"""How many optimizer steps a run will take: the Trainer's own arithmetic, before any device is spent.

Follows `Trainer.set_initial_training_values` and accelerate's `BatchSamplerShard` (even batches) of transformers
5.24 and accelerate 1.15. Pure and torch-free; a test compares it with a real Trainer's count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from trainer_core.problems import OptionsInvalid, Problem


@dataclass(frozen=True)
class StepPlan:
    """What a run will do."""

    steps_per_epoch: int
    """Optimizer steps in one pass; a last, smaller accumulation group is a step too."""
    total_steps: int
    n_epochs: float
    """Passes over the rows that total_steps make; the last one may be a part."""
    global_batch: int
    """Rows an optimizer step sees, on all processes together; fewer in a last, smaller group."""
    warmup_steps: int
    notes: list[str] = field(default_factory=list)


def plan_steps(
    n_rows: int,
    n_processes: int,
    per_device_batch: int,
    accumulation: int,
    epochs: float,
    max_steps: int | None,
    drop_last: bool,
    warmup: float,
) -> StepPlan:
    """The plan for `n_rows` train rows. `max_steps` null or -1 means `epochs` decide; `warmup` under 1 is a share.

    Raises OptionsInvalid when no step would be done, or when the warm-up is longer than the run.
    """
    batches = batches_per_process(n_rows, n_processes, per_device_batch, drop_last=drop_last)
    global_batch = n_processes * per_device_batch * accumulation
    by_epochs = max_steps is None or max_steps == -1
    if batches == 0:
        raise OptionsInvalid([_no_batch(n_rows, n_processes, per_device_batch)])
    steps_per_epoch = max(math.ceil(batches / accumulation), 1)
    total = math.ceil(epochs * steps_per_epoch) if by_epochs else int(max_steps or 0)
    if total < 1:
        param, found = ("num_train_epochs", epochs) if by_epochs else ("max_steps", max_steps)
        message = f"{found} gives no optimizer step ({n_rows} rows, {steps_per_epoch} steps an epoch)"
        raise OptionsInvalid([Problem(f"training.{param}", message, "no_steps", "Give more than 0.", str(found))])
    warmup_steps = int(warmup) if warmup >= 1 else math.ceil(total * warmup)
    if warmup_steps > total:
        message = f"warms up for {warmup_steps} steps, but the run has {total}: the rate would never be reached"
        hint = f"Give at most {total}, or a share such as 0.03."
        raise OptionsInvalid([Problem("training.warmup_steps", message, "out_of_range", hint, str(warmup))])
    notes = _notes(n_rows, n_processes, per_device_batch, accumulation, batches, drop_last=drop_last)
    if warmup_steps == total:
        learnt = "nothing is learnt" if total == 1 else "the peak rate is never reached"
        notes.append(
            f"The warm-up takes {warmup_steps} of {total} steps, the first at rate 0: {learnt}. Set warmup_steps 0."
        )
    return StepPlan(steps_per_epoch, total, total / steps_per_epoch, global_batch, warmup_steps, notes)


def batches_per_process(n_rows: int, n_processes: int, per_device_batch: int, *, drop_last: bool) -> int:
    """Batches each process sees in one pass: all see the same number, filled up from the front or cut."""
    whole, rest = divmod(n_rows, per_device_batch)
    batches = whole if drop_last or rest == 0 else whole + 1
    each, left = divmod(batches, n_processes)
    return each if left == 0 or drop_last else each + 1


def _no_batch(n_rows: int, n_processes: int, per_device_batch: int) -> Problem:
    if n_rows == 0:
        return Problem("dataset.train", "has no row to train on", "no_steps", "Upload rows, or see which were dropped.")
    needed = n_processes * per_device_batch
    message = (
        f"no optimizer step: {n_rows} rows fill no batch of {per_device_batch} on {n_processes} processes "
        f"({needed} rows) and dataloader_drop_last leaves out what is incomplete"
    )
    hint = f"Set dataloader_drop_last to false, lower per_device_train_batch_size, or give at least {needed} rows."
    return Problem("training.dataloader_drop_last", message, "no_steps", hint)


def _notes(
    n_rows: int, n_processes: int, per_device_batch: int, accumulation: int, batches: int, *, drop_last: bool
) -> list[str]:
    notes = []
    seen = batches * n_processes * per_device_batch
    if drop_last and seen < n_rows:
        notes.append(f"dataloader_drop_last leaves out {n_rows - seen} of {n_rows} rows in each epoch.")
    # A lone process keeps a smaller last batch; several fill up from the first rows so that all step together.
    if not drop_last and n_processes > 1 and seen > n_rows:
        notes.append(
            f"{seen - n_rows} of the first rows are seen twice in an epoch, so that all processes step together."
        )
    if batches < accumulation:
        notes.append(
            f"gradient_accumulation_steps is {accumulation}, but an epoch has {batches} batches a process: each "
            f"step sums {batches}."
        )
    elif batches % accumulation:
        notes.append(f"The last step of each epoch sums {batches % accumulation} batches instead of {accumulation}.")
    return notes
