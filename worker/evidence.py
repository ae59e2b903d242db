"""Gathers what a finished run left behind, for `outcome.judge`: reads files, decides nothing."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from pydantic import ValidationError

from trainer_core.contract import Cause, RunFolder
from worker.outcome import Evidence, LauncherExit
from worker.plan import RunPlan
from worker.process import Identity, boot_id
from worker.ship import Told
from worker.stall import kept_cause
from worker.tail import clean
from worker.upload import Uploader

log = logging.getLogger(__name__)

TAIL_BYTES = 64 * 1024
N_TAIL_LINES = 30
MAX_LINE = 500


def gather(
    folder: RunFolder, plan: RunPlan, leader: Identity, *, told: Told, uploader: Uploader, stop: str | None
) -> Evidence:
    return Evidence(
        exit=_read_exit(folder.exit),
        is_rebooted=leader.boot != boot_id(),
        stop=stop,
        done=told.done,
        stopped=told.stopped,
        failed=told.failed,
        stalled=kept_cause(folder),
        planned_steps=plan.planned_steps,
        saved=told.saved,
        uploaded=uploader.uploaded,
        inherited=uploader.inherited,
        upload_problem=uploader.problem,
        rank_causes=_rank_causes(folder.scratch),
        launcher_log=tail_of(folder.launcher_log),
        log_tail=log_tail(folder),
    )


def log_tail(folder: RunFolder) -> list[str]:
    """The last lines of rank 0, else of the launcher."""
    for path in (folder.rank_log(0), folder.launcher_log):
        lines = [line[:MAX_LINE] for line in tail_of(path).splitlines() if line.strip()]
        if lines:
            return lines[-N_TAIL_LINES:]
    return []


def tail_of(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read().replace(b"\r", b"\n").split(b"\n")
    except FileNotFoundError:
        return ""
    return "\n".join(clean(line) for line in lines)


def _read_exit(path: Path) -> LauncherExit | None:
    try:
        ended = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return LauncherExit(ended["exit_code"], ended["signal"], ended["message"])


def _rank_causes(scratch: Path) -> list[Cause]:
    causes = []
    for path in sorted(scratch.glob("rank*.error.json")):
        try:
            causes.append(Cause.model_validate_json(path.read_bytes()))
        except ValidationError as error:  # cut short by a kill
            log.warning("%s cannot be read: %s", path.name, error)
    return causes
