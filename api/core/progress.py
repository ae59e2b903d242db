"""How far a run is and how long it will take, from its plan and its own pace. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

WINDOW_ROWS = 50  # recent enough to follow a change of pace, long enough to hold an evaluation or a save


@dataclass(frozen=True, slots=True)
class Mark:
    """The run was at `step` at this instant."""

    at: datetime
    step: int


def eta_s(planned_steps: int | None, newest: Mark, recent: Mark | None, began: Mark | None) -> float | None:
    """Seconds of training left as of `newest`, or null while there is no pace to tell it by.

    `recent` is the oldest mark of the window and `began` where this attempt began to train; evaluations and saves
    between them count, because the steps ahead will have theirs too. A resumed run is judged by its own steps alone.
    """
    if planned_steps is None:
        return None
    left = planned_steps - newest.step
    if left <= 0:
        return 0.0
    for mark in (recent, began):
        if mark is not None and newest.step > mark.step and newest.at > mark.at:
            pace_s = (newest.at - mark.at).total_seconds() / (newest.step - mark.step)
            return left * pace_s
    return None
