"""The service's side of a run folder: who supervises it, what is laid into it, and which runs this machine has."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from api.core.settings import Settings
from trainer_core.contract import RunConfig, RunFolder
from worker.plan import RunPlan

LAUNCH_FILE = "launch.json"
LOCK_FILE = "supervisor.lock"
SUPERVISOR_LOG = "supervisor.log"
# The STOP wish, or anything else that a supervisor should ask about at once.
BEAT_NOW_FILE = "beat-now"
LIVE = ".live"


class Lock:
    """Held by whoever supervises a run folder; the kernel gives it back when the last holder of `fd` dies."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def take(cls, folder: Path) -> Lock | None:
        """None while a supervisor lives."""
        fd = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return cls(fd)

    def close(self) -> None:
        """This process's part of it: a supervisor that inherited it goes on holding it."""
        os.close(self.fd)


@contextmanager
def taken(folder: Path) -> Iterator[Lock | None]:
    lock = Lock.take(folder)
    try:
        yield lock
    finally:
        if lock is not None:
            lock.close()


def lay_out(plan: RunPlan, config: RunConfig) -> None:
    """The folders and config.json; launch.json last, as its presence says that the rest is there."""
    folder = RunFolder(plan.run_dir)
    for path in (folder.logs, folder.checkpoints, folder.output, folder.scratch, plan.tmp_dir):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(folder.config, config.model_dump_json(indent=2))
    write_whole(plan.run_dir / LAUNCH_FILE, plan.model_dump_json(indent=2))


def read_plan(folder: Path) -> RunPlan | None:
    """None: the folder was never laid out to its end."""
    try:
        return RunPlan.model_validate_json((folder / LAUNCH_FILE).read_bytes())
    except FileNotFoundError:
        return None


def write_whole(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


def clear_half_saved(folder: RunFolder) -> None:
    """Give the bytes of a save that was cut off back to the disk. Only once no rank lives: each may still write."""
    for pattern in (".saving-*", ".removing-*"):
        for path in folder.checkpoints.glob(pattern):
            shutil.rmtree(path, ignore_errors=True)


def tidy(plan: RunPlan) -> None:
    """Take away what nobody needs after a run; its records, logs and checkpoints stay."""
    for path in (plan.tmp_dir, plan.run_dir / "cache", plan.run_dir / "held"):
        shutil.rmtree(path, ignore_errors=True)


# Runs whose processes may still live on this machine, whatever the database says by now.


def mark_live(settings: Settings, attempt_id: str, folder: Path) -> None:
    (settings.runs_dir / LIVE).mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(settings.runs_dir / LIVE / attempt_id, str(folder))


def unmark_live(settings: Settings, attempt_id: str) -> None:
    (settings.runs_dir / LIVE / attempt_id).unlink(missing_ok=True)


def live_runs(settings: Settings) -> dict[str, Path]:
    """Attempt -> run folder."""
    marks = settings.runs_dir / LIVE
    names = [path for path in marks.iterdir() if not path.name.startswith(".")] if marks.is_dir() else []
    found = {}
    for path in names:
        try:
            found[path.name] = Path(path.read_text())
        except FileNotFoundError:  # its supervisor has just finished
            continue
    return found
