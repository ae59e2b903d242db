"""The stall watch: how long a run has shown no sign of life, and what is told and done when that was too long.

Signs are its records and the ranks' beats, which they give at every step and every evaluated batch. Knows no database.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from api.core.events import NewEvent
from api.core.stalls import StallLimits
from trainer_core.contract import Cause, CauseCode, Phase, RunFolder
from worker.folder import write_whole
from worker.ship import Told
from worker.stacks import Stack

STALLED_FILE = "stalled.json"
MAX_EVENT_CHARACTERS = 2_000
# Phases in which beats come one after another, once the first has come.
LIVELY = frozenset({Phase.TRAINING, Phase.EVALUATING})


@dataclass(frozen=True)
class Silence:
    """A run that has shown no sign for longer than it may."""

    silent_s: float
    limit_s: float
    phase: Phase | None
    step: int


class StallWatch:
    """`look` is called now and then, and answers once for every silence."""

    def __init__(self, folder: RunFolder, limits: StallLimits, now_s: float) -> None:
        self._folder = folder
        self._limits = limits
        self._signs: tuple[int, int] = (0, 0)
        self._since_s = now_s
        self._phase: Phase | None = None
        # Where something has come through: the first step or batch may compile, later ones do not.
        self._lively: set[Phase | None] = set()
        self.is_stalled = False

    def look(self, told: Told, now_s: float) -> Silence | None:
        """The silence that has just become too long. `is_stalled` falls again with the next sign."""
        signs = (told.n_records, _newest_beat(self._folder.scratch))
        if signs != self._signs:
            if told.has_moved or told.phase == self._phase:
                self._lively.add(told.phase)
            self._signs, self._since_s, self._phase, self.is_stalled = signs, now_s, told.phase, False
            return None
        is_lively = told.phase in LIVELY & self._lively
        limit_s = self._limits.after_s if is_lively else self._limits.slow_after_s
        silent_s = now_s - self._since_s
        if self.is_stalled or silent_s < limit_s:
            return None
        self.is_stalled = True
        return Silence(silent_s, limit_s, told.phase, told.step)


class Report:
    """What is told of a silence: a file with every stack, an event, and the cause if the run is to end."""

    def __init__(self, silence: Silence, stacks: Sequence[Stack], attempt: int) -> None:
        self._silence = silence
        self._stacks = stacks
        self.name = f"stacks/attempt-{attempt}-step-{silence.step}-{silence.phase or 'starting'}.txt"

    @property
    def message(self) -> str:
        silence = self._silence
        frozen = [stack.title for stack in self._stacks if stack.state.startswith("stopped")]
        who = f" {frozen[0][0].upper()}{frozen[0][1:]}." if frozen else ""
        return (
            f"No sign of progress for {silence.silent_s:,.0f} s while {_doing(silence.phase)}, after step "
            f"{silence.step:,}; the limit is {silence.limit_s:,.0f} s.{who}"
        )

    def write(self, folder: RunFolder) -> Path:
        path = folder.output / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = [f"=== {stack.title}\n{stack.text.rstrip()}\n" for stack in self._stacks]
        write_whole(path, "\n".join([self.message + "\n", *(parts or ["No process of a rank was found.\n"])]))
        return path

    def event(self, *, stops: bool) -> NewEvent:
        then = "The attempt is ended" if stops else "It is left alone, as the job asks"
        message = f"{self.message} {then}; the stacks of its processes are in {self.name}."
        return NewEvent("stalled", message, level="error" if stops else "warning", data=self._facts())

    def cause(self) -> Cause:
        hint = f"See where each rank stood in {self.name}; raise stall.after_s if the run is only slow."
        return Cause(code=CauseCode.STALLED, message=self.message, hint=hint, param="stall", details=self._facts())

    def _facts(self) -> dict[str, object]:
        silence = self._silence
        stacks = [
            {
                "rank": stack.rank,
                "is_child": stack.is_child,
                "pid": stack.pid,
                "state": stack.state,
                "where": stack.where,
                "stack": stack.text[:MAX_EVENT_CHARACTERS],
            }
            for stack in self._stacks
        ]
        told = {"phase": silence.phase, "step": silence.step, "silent_s": round(silence.silent_s, 1)}
        return {**told, "limit_s": silence.limit_s, "artifact": self.name, "stacks": stacks}


def keep_cause(folder: RunFolder, cause: Cause) -> None:
    """On disk, as whoever ends the run may not be who settles it."""
    write_whole(folder.scratch / STALLED_FILE, cause.model_dump_json())


def kept_cause(folder: RunFolder) -> Cause | None:
    try:
        return Cause.model_validate_json((folder.scratch / STALLED_FILE).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def _newest_beat(scratch: Path) -> int:
    return max((_changed(path) for path in scratch.glob("rank*.beat")), default=0)


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _doing(phase: Phase | None) -> str:
    return "starting" if phase is None else str(phase.value)
