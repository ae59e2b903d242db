"""A rank's sign of life, and how it tells where it stands: both for whoever watches the run from outside."""

from __future__ import annotations

import faulthandler
import time
from pathlib import Path

from trainer_core.contract import STACKS_SIGNAL

# Often enough for a limit of seconds, and no work for a disk that many runs share.
EVERY_S = 0.5


class Heartbeat:
    """Touches a file, at most every half second. A disk that refuses it ends no training."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last_s = 0.0

    def beat(self) -> None:
        now_s = time.monotonic()
        if now_s - self._last_s < EVERY_S:
            return
        self._last_s = now_s
        try:
            self._path.touch()
        except OSError as error:
            print(f"{self._path.name} could not be touched: {error}", flush=True)


def write_stacks_on_signal(path: Path) -> None:
    """Every thread's stack is added to the file on STACKS_SIGNAL, also while the interpreter waits in a library.

    Loader processes that are forked from this one answer in the same way. The file stays open as long as the process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, "ab")  # noqa: SIM115
    faulthandler.register(STACKS_SIGNAL, file=file, all_threads=True)
