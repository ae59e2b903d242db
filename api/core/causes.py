"""Why an attempt ended, in words and as a typed cause. Pure."""

from __future__ import annotations

import signal
from typing import Literal

from trainer_core.contract import Cause, CauseCode, Frozen

Result = Literal["succeeded", "failed", "stopped", "died", "launch_failed", "lost"]


class Outcome(Frozen):
    """How the processes of an attempt ended, as its supervisor or the sweep saw it."""

    result: Result
    exit_code: int | None = None
    signal: int | None = None
    cause: Cause | None = None


def cause_of(outcome: Outcome) -> Cause:
    """Why an attempt that did not succeed ended, in words; the trainer's own cause where it named one."""
    if outcome.cause is not None:
        return outcome.cause
    details = outcome.model_dump(mode="json", include={"exit_code", "signal"}, exclude_none=True)
    match outcome.result:
        case "stopped":
            return Cause(code=CauseCode.PREEMPTED, message="the run was asked to leave its devices", details=details)
        case "lost":
            return Cause(code=CauseCode.NODE_LOST, message="the node was not heard of any more", details=details)
        case "launch_failed":
            return Cause(code=CauseCode.INTERNAL, message="the run could not be started", details=details)
        case _:
            return Cause(code=CauseCode.RANK_DIED, message=_death_words(outcome), details=details)


def timeout(limit_s: int) -> Cause:
    """The job's time is used up."""
    return Cause(
        code=CauseCode.TIMEOUT,
        message=f"the time limit of {limit_s:,} s is used up, over all attempts of the job together",
        hint="Retry the job from its last checkpoint with a longer time_limit_s.",
        param="time_limit_s",
    )


def _death_words(outcome: Outcome) -> str:
    if outcome.signal == signal.SIGKILL:
        return "killed by signal 9 (possibly out of memory)"
    if outcome.signal is not None:
        return f"killed by signal {outcome.signal}"
    if outcome.exit_code is not None:
        return f"the processes ended with exit code {outcome.exit_code} and named no cause; see the end of the log"
    return "the processes are gone and left no word; see the end of the log"
