"""Starts a supervisor that outlives whoever started it: a session of its own, no parent, output to a file.

The folder's lock goes along as an open file, so there is no moment in which two could think that nobody supervises.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from api.core.settings import Settings
from worker.folder import SUPERVISOR_LOG, Lock
from worker.process import start_alone

REPOSITORY = Path(__file__).resolve().parents[1]


def environ_of(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with exactly these settings in it: another process of ours reads the same ones."""
    kept = {name: value for name, value in environ.items() if not name.startswith("TRAINYARD_")}
    if "TRAINYARD_CONFIG" in environ:
        kept["TRAINYARD_CONFIG"] = environ["TRAINYARD_CONFIG"]
    for name, value in settings:
        if value is not None:
            kept[f"TRAINYARD_{name.upper()}"] = _as_text(value)
    kept["PYTHONPATH"] = str(REPOSITORY)
    return kept


def _as_text(value: object) -> str:
    """A setting as the environment holds it; several values are read as JSON."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, tuple | list | dict):
        return json.dumps(value, default=str)
    return str(value)


def start_supervisor(settings: Settings, attempt_id: str, folder: Path, lock: Lock) -> None:
    """Returns once it stands alone, before it is ready; should it fail, the lock is free again at the next look."""
    supervise = [sys.executable, "-P", "-m", "worker", "supervise", attempt_id]
    with open(folder / SUPERVISOR_LOG, "ab") as log:
        start_alone(
            [*supervise, "--run-dir", str(folder), "--lock-fd", str(lock.fd)],
            cwd=folder,
            env=environ_of(settings, os.environ),
            output=log,
            pass_fds=(lock.fd,),
        )


def start_nudge(settings: Settings) -> None:
    """Let the scheduler know that something has changed, without waiting for it to be said."""
    argv = [sys.executable, "-P", "-m", "worker", "nudge"]
    start_alone(argv, cwd=settings.data_dir, env=environ_of(settings, os.environ), output=subprocess.DEVNULL)
