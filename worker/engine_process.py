"""One engine's process: a child on a leash, spoken to in JSON lines, gone when the block ends."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from pydantic import BaseModel, ValidationError

from api.core.settings import Settings
from trainer_core.serve.order import WORDS, Cancel, Failed, Finished, Piece, Prompt, Ready, Refused
from worker import tether
from worker.evidence import tail_of
from worker.inventory import n_cores
from worker.plan import make_env, tmp_dir_for
from worker.process import Identity

PROGRAM = (sys.executable, "-P", "-m", "trainer_core", "serve")
END_WITHIN_S = 2.0
LOG = "engine.log"
AnyWord = Ready | Failed | Piece | Finished | Refused


@dataclass(frozen=True)
class Placed:
    """Where an engine runs: its folder, its id, its CUDA device if it has one."""

    folder: Path
    engine_id: str
    device_index: int | None


class EngineProcess:
    """A context manager. Enter and leave it in the thread that lives as long as it: the leash ends there."""

    def __init__(self, placed: Placed, settings: Settings, program: Sequence[str]) -> None:
        self._placed = placed
        self._settings = settings
        self._program = program
        self._words: queue.Queue[AnyWord | None] = queue.Queue()
        self._tmp_dir = tmp_dir_for(placed.folder, placed.engine_id)

    def __enter__(self) -> EngineProcess:
        folder = self._placed.folder
        self._tmp_dir.mkdir(parents=True, mode=0o700, exist_ok=True)
        leash = [sys.executable, "-I", "-S", str(Path(tether.__file__)), str(os.getpid())]
        with open(folder / LOG, "wb") as out:
            self._child = subprocess.Popen(
                [*leash, *self._program, str(folder)],
                cwd=folder,
                env=self._env(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                start_new_session=True,
            )
        self.identity = Identity.of(self._child.pid)
        self._ears = threading.Thread(target=self._listen, name=f"{self._placed.engine_id} words", daemon=True)
        self._ears.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):
            self._child.stdin.close()  # an engine without input ends
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(END_WITHIN_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)  # also what it may have left behind
        self._child.wait()
        self._ears.join(END_WITHIN_S)
        shutil.rmtree(self._tmp_dir, ignore_errors=True)

    def tell(self, wish: Prompt | Cancel) -> None:
        """An engine that has ended does not hear it; `hear` tells of that."""
        self._write(wish)

    def hear(self, timeout_s: float) -> AnyWord | None:
        """The next word within the time, or None. Raises EOFError once it has ended and everything was heard."""
        try:
            word = self._words.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if word is None:
            self._words.put(None)
            raise EOFError
        return word

    def exit_code(self) -> int:
        return self._child.wait(END_WITHIN_S)

    def last_words(self) -> str:
        lines = [line for line in tail_of(self._placed.folder / LOG).splitlines() if line.strip()]
        return lines[-1][:300] if lines else "no output"

    def _write(self, wish: BaseModel) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):
            self._child.stdin.write(wish.model_dump_json().encode() + b"\n")
            self._child.stdin.flush()

    def _listen(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as said:
            for line in said:
                with contextlib.suppress(ValidationError):
                    self._words.put(WORDS.validate_json(line))
        self._words.put(None)

    def _env(self) -> dict[str, str]:
        folder = self._placed.folder
        env = make_env(self._settings, os.environ, folder=folder, tmp_dir=self._tmp_dir, n_cores=n_cores())
        index = self._placed.device_index
        if index is None:
            return env | {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
        return env | {"CUDA_VISIBLE_DEVICES": str(index)}
