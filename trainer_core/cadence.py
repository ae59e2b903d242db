"""When a run evaluates and saves, so that the best checkpoint is always one that was both evaluated and saved.

The Trainer's own load-best is not used: it refuses or dies where the two are out of step. The rule here instead:
saving and evaluating both count in steps or both in epochs; of two step counts the larger moves up to a multiple of
the smaller; and the Trainer evaluates and saves at the last step whatever the counts are, so a best one exists.
Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trainer_core.problems import OptionsInvalid, Problem


def agree(save_steps: int, eval_steps: int) -> tuple[int, int]:
    """(save_steps, eval_steps) with the larger one moved up to the next multiple of the smaller.

    So either every saved step is evaluated, or every evaluated step is saved. 3 and 2 become 4 and 2; 2 and 5
    become 2 and 6.
    """
    smaller = min(save_steps, eval_steps)
    larger = math.ceil(max(save_steps, eval_steps) / smaller) * smaller
    return (larger, eval_steps) if save_steps >= eval_steps else (save_steps, larger)


def absolute(steps: float, total_steps: int) -> int:
    """A cadence in steps; a share of all steps is rounded up as in the Trainer (`TrainerState.compute_steps`)."""
    return int(steps) if steps >= 1 else max(1, math.ceil(total_steps * steps))


def settle(values: Mapping[str, Any], total_steps: int | None) -> tuple[dict[str, Any], list[str]]:
    """The same options with eval_steps and save_steps in agreement, and notes on what was moved.

    Shares become whole steps once `total_steps` is known; before that equal shares agree by themselves and others
    are left with a note. Raises OptionsInvalid when eval_delay lets no evaluation happen in `total_steps`.
    """
    settled = dict(values)
    if total_steps is not None:
        _check_delay(settled, total_steps)
    if settled.get("save_strategy") != "steps":
        return settled, []
    if settled.get("eval_strategy") != "steps":
        if total_steps is not None:
            settled["save_steps"] = absolute(settled["save_steps"], total_steps)
        return settled, []
    save, evaluate = settled["save_steps"], settled["eval_steps"]
    if total_steps is not None:
        save, evaluate = absolute(save, total_steps), absolute(evaluate, total_steps)
    elif save < 1 or evaluate < 1:
        return settled, _note_on_shares(save, evaluate)
    settled["save_steps"], settled["eval_steps"] = agree(int(save), int(evaluate))
    return settled, _note_on_move((save, evaluate), (settled["save_steps"], settled["eval_steps"]))


def _note_on_shares(save: float, evaluate: float) -> list[str]:
    if save == evaluate:
        return []
    return [
        f"save_steps {save:g} and eval_steps {evaluate:g} are brought into agreement once the number of steps is "
        "known: the larger one moves up to a multiple of the smaller."
    ]


def _note_on_move(asked: tuple[float, float], settled: tuple[int, int]) -> list[str]:
    if asked[0] == settled[0] and asked[1] == settled[1]:
        return []
    return [
        f"save_steps {asked[0]:g} and eval_steps {asked[1]:g} do not meet: save_steps is {settled[0]} and eval_steps "
        f"{settled[1]}, so that the best checkpoint is one that was both evaluated and saved."
    ]


def _check_delay(values: Mapping[str, Any], total_steps: int) -> None:
    delay = values.get("eval_delay", 0)
    if values.get("eval_strategy") == "steps" and delay > total_steps:
        message = f"no evaluation before step {delay:g}, but the run has {total_steps} steps"
        raise OptionsInvalid(
            [Problem("training.eval_delay", message, "out_of_range", f"Give at most {total_steps}.", f"{delay:g}")]
        )
