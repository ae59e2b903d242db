"""How a run ended, judged from what it left: the launcher's exit, the last records, the ranks' own words. Pure.

`succeeded` is said only when the trainer said done, the steps are those that were planned, and the last checkpoint is
in storage with the digest that the trainer told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from api.core.attempts import Outcome
from trainer_core.contract import Cause, CauseCode, CheckpointSaved, Done, Failed, Stopped

NOT_EXECUTABLE = 127
# Launchers end the other ranks with SIGTERM when one has died: that one is not the cause.
SIGTERM = 15

# A rank's paragraph in torchrun's report of failures.
_RANK_REPORT = re.compile(r"rank\s*: (?P<rank>\d+) \(local_rank: \d+\)\s+exitcode\s*: (?P<code>-?\d+) \(pid: \d+\)")
# The deepspeed launcher's last words; the command it prints is not that of the rank which died.
_DEEPSPEED_REPORT = re.compile(r"exits with return code = (?P<code>-?\d+)")


@dataclass(frozen=True)
class LauncherExit:
    """exit.json: exactly one of the two numbers is set."""

    exit_code: int | None
    signal: int | None
    message: str | None = None


@dataclass(frozen=True)
class Evidence:
    """All that is known of a run whose processes are gone."""

    exit: LauncherExit | None = None  # None: the session leader was killed before it could tell
    is_rebooted: bool = False
    stop: str | None = None
    done: Done | None = None
    stopped: Stopped | None = None
    failed: Failed | None = None
    stalled: Cause | None = None  # why the supervisor itself ended the run
    planned_steps: int | None = None
    saved: Mapping[int, CheckpointSaved] = field(default_factory=dict)
    uploaded: Mapping[int, str] = field(default_factory=dict)  # step -> digest of the manifest in storage
    inherited: Mapping[int, str] = field(default_factory=dict)  # the same, saved by an earlier attempt
    upload_problem: Cause | None = None
    rank_causes: Sequence[Cause] = ()
    launcher_log: str = ""
    log_tail: Sequence[str] = ()


def judge(evidence: Evidence) -> Outcome:
    """The outcome of an attempt. Order matters: what was finished counts before what was wished or went wrong."""
    if evidence.done is not None:
        problem = _unfinished(evidence, evidence.done)
        if problem is None:
            return _outcome(evidence, "succeeded", None)
        if evidence.stop is None:
            return _outcome(evidence, "failed", problem)
    if evidence.stalled is not None and evidence.stop is None:
        return _outcome(evidence, "failed", evidence.stalled)
    cause = _told_cause(evidence)
    if evidence.stop is not None and not _counts_beside(evidence.stop, cause):
        return _outcome(evidence, "stopped", None)
    if cause is not None:
        return _outcome(evidence, "failed", cause)
    if evidence.stopped is not None:
        return _outcome(evidence, "stopped", None)
    if evidence.exit is not None and evidence.exit.exit_code == NOT_EXECUTABLE and evidence.exit.message:
        message = f"The launcher could not be started: {evidence.exit.message}"
        return _outcome(evidence, "launch_failed", Cause(code=CauseCode.INTERNAL, message=message))
    return _outcome(evidence, "died", _cause_of_death(evidence))


def _counts_beside(stop: str, cause: Cause | None) -> bool:
    """Whether a fault is worth telling of a run that was asked to stop: not when it was cancelled, and not when ranks
    went away, which is what stopping hard looks like."""
    return stop != "cancel" and cause is not None and cause.code is not CauseCode.RANK_DIED


def _outcome(evidence: Evidence, result: Any, cause: Cause | None) -> Outcome:
    ended = evidence.exit
    return Outcome(
        result=result, exit_code=ended and ended.exit_code, signal=_signal(evidence) if ended else None, cause=cause
    )


def _unfinished(evidence: Evidence, done: Done) -> Cause | None:
    """Why a run that says it is done is not a success, or None."""
    planned = evidence.planned_steps if evidence.planned_steps is not None else done.total_steps
    if done.step != planned or done.total_steps != planned:
        message = f"The trainer says done at step {done.step} of {done.total_steps}; {planned} steps were planned."
        return Cause(code=CauseCode.INTERNAL, message=message)
    saved = evidence.saved.get(done.last_step)
    expected = saved.manifest_sha256 if saved else evidence.inherited.get(done.last_step)
    if expected is None:
        message = f"The trainer names checkpoint {done.last_step} as its last, and never told that it was saved."
        return Cause(code=CauseCode.INTERNAL, message=message)
    if evidence.uploaded.get(done.last_step) == expected:
        return None
    return evidence.upload_problem or Cause(
        code=CauseCode.STORAGE_UNAVAILABLE,
        message=f"The last checkpoint, of step {done.last_step}, did not reach storage whole.",
        hint="See the events of the job; then let it run again, it goes on from its newest listed checkpoint.",
    )


def _told_cause(evidence: Evidence) -> Cause | None:
    """What the trainer itself said, made exact where it saw only that another rank went away."""
    told = evidence.failed.cause if evidence.failed else next(iter(evidence.rank_causes), None)
    if told is None or told.code is not CauseCode.RANK_DIED:
        return told
    for other in evidence.rank_causes:
        if other.code is not CauseCode.RANK_DIED:
            return other
    killed = killed_rank(evidence.launcher_log)
    return _killed(evidence, *killed) if killed else told


def _cause_of_death(evidence: Evidence) -> Cause:
    killed = killed_rank(evidence.launcher_log)
    if killed is not None:
        return _killed(evidence, *killed)
    ended = evidence.exit
    if ended is None and evidence.is_rebooted:
        return _death(evidence, CauseCode.NODE_LOST, "The machine was started anew while the run was on it.")
    if ended is None:
        return _death(evidence, CauseCode.RANK_DIED, "The run was killed from outside, its session leader with it.")
    if ended.signal is not None:
        return _death(evidence, CauseCode.RANK_DIED, f"The launcher was {signal_words(ended.signal)}.")
    if ended.exit_code == 0:
        return _death(evidence, CauseCode.INTERNAL, "The launcher ended with exit code 0, and no record says done.")
    message = f"The launcher ended with exit code {ended.exit_code}, and no process named a cause."
    return _death(evidence, CauseCode.RANK_DIED, message)


def _killed(evidence: Evidence, rank: int | None, number: int) -> Cause:
    who = "A process of the run" if rank is None else f"Rank {rank}"
    return _death(evidence, CauseCode.RANK_DIED, f"{who} was {signal_words(number)}.", rank=rank, signal=number)


def _death(
    evidence: Evidence, code: CauseCode, message: str, rank: int | None = None, signal: int | None = None
) -> Cause:
    details: dict[str, Any] = {"log_tail": list(evidence.log_tail)}
    if signal is not None:
        details["signal"] = signal
    return Cause(
        code=code, message=message, hint="The end of the log is in details.log_tail.", rank=rank, details=details
    )


def _signal(evidence: Evidence) -> int | None:
    if evidence.exit is not None and evidence.exit.signal is not None:
        return evidence.exit.signal
    killed = killed_rank(evidence.launcher_log)
    return killed[1] if killed else None


def signal_words(number: int) -> str:
    return f"killed by signal {number}" + (" (possibly out of memory)" if number == 9 else "")


def killed_rank(launcher_log: str) -> tuple[int | None, int] | None:
    """Rank and signal of the process that a signal killed first, from the launcher's report."""
    reports = [(int(m["rank"]), -int(m["code"])) for m in _RANK_REPORT.finditer(launcher_log) if int(m["code"]) < 0]
    # torchrun lists the root cause last and the others, which it ended itself, before.
    for rank, number in reversed(reports):
        if number != SIGTERM or len(reports) == 1:
            return rank, number
    for match in _DEEPSPEED_REPORT.finditer(launcher_log):
        if int(match["code"]) < 0:
            return None, -int(match["code"])
    return None
