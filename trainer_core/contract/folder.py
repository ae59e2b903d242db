"""The run folder: what lies where in it, how a run is asked to stop, and the codes it exits with."""

from __future__ import annotations

import signal
from enum import IntEnum
from pathlib import Path
from typing import Literal

from pydantic import Field

from trainer_core.frozen import Frozen


class RunFolder:
    """Names inside a run folder. `root` is absolute; nothing here touches the disk.

    config.json  STOP           written by the service
    events.jsonl                one record a line, appended by rank 0 alone
    logs/rank{N}.log            what each rank printed, stdout and stderr together; logs/launcher.log the launcher's own
    checkpoints/checkpoint-{S}  complete once it holds manifest.json (written last, then renamed into place)
    output/                     the files of the finished run: results, plots, model card (weights are checkpoints)
    preflight.json              what `preflight` found
    exit.json                   written by the supervisor: how the launcher ended
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "config.json"
        self.stop = root / "STOP"
        self.events = root / "events.jsonl"
        self.logs = root / "logs"
        self.launcher_log = self.logs / "launcher.log"
        self.checkpoints = root / "checkpoints"
        self.output = root / "output"
        self.scratch = root / "scratch"
        self.preflight = root / "preflight.json"
        self.exit = root / "exit.json"

    def rank_log(self, rank: int) -> Path:
        return self.logs / f"rank{rank}.log"

    def rank_beat(self, rank: int) -> Path:
        """Touched by the rank at every step and every evaluated batch: its sign of life."""
        return self.scratch / f"rank{rank}.beat"

    def rank_stacks(self, rank: int) -> Path:
        """Where the rank and its loaders write their stacks on STACKS_SIGNAL."""
        return self.scratch / f"rank{rank}.stacks"

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"checkpoint-{step}"


MANIFEST_NAME = "manifest.json"
STACKS_SIGNAL = signal.SIGUSR2
"""On it a rank writes where it stands, see `RunFolder.rank_stacks`."""


class ExitCode(IntEnum):
    """Exit codes of `python -m trainer_core run`, the same on every rank."""

    DONE = 0
    FAILED = 1  # the cause is the last `error` record in events.jsonl
    CONFIG_INVALID = 2
    STOPPED = 75  # a STOP file was honoured at a step boundary; a checkpoint was saved if it asked for one


class StopRequest(Frozen):
    """The content of the STOP file."""

    reason: Literal["cancel", "pause", "preempt", "drain", "timeout"] = "cancel"
    save_checkpoint: bool = Field(default=False, description="Save a checkpoint at the step boundary before leaving.")
