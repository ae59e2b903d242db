"""Finds or fetches the files a run reads, onto this machine: rows, and the checkpoints it goes on from."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from api.core.errors import NotFound, Unavailable
from api.core.specs import Resolved, ResolvedRows
from api.core.storage import Storage
from trainer_core.contract import MANIFEST_NAME, Cause, CauseCode, Manifest, ResumePoint, RunFolder
from worker.plan import Inputs

log = logging.getLogger(__name__)


class CannotStart(Exception):
    """A run cannot be laid out; `cause` says why."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.message)
        self.cause = cause


@dataclass(frozen=True)
class Stored:
    """A checkpoint as the database lists it."""

    step: int
    prefix: str
    manifest_sha256: str
    mode: Literal["full", "weights"] = "full"


def stored_start(resolved: Resolved) -> Stored | None:
    """The other job's checkpoint that this one continues, if it does."""
    start = resolved.start
    return None if start is None else Stored(start.step, start.storage_prefix, start.manifest_sha256, start.mode)


def bring_inputs(
    storage: Storage, resolved: Resolved, folder: RunFolder, own: Sequence[Stored], start: Stored | None
) -> Inputs:
    """All inputs of a run, as paths on this machine. Raises CannotStart, and what storage raises when it is away.

    Every listed checkpoint of the job is laid into the run folder, as the trainer keeps best and last across attempts;
    it goes on from the newest whole one, else from `start`, another job's checkpoint.
    """
    data = resolved.data
    return Inputs(
        train=_rows(storage, data.train, folder),
        eval=_rows(storage, data.eval, folder) if data.eval else None,
        resume=_resume(storage, folder, own, start),
    )


def _rows(storage: Storage, rows: ResolvedRows, folder: RunFolder) -> Path:
    target = folder.root / "data" / f"{rows.sha256}.jsonl"
    here = storage.local_path(rows.storage_key)
    if here is not None:
        # A link of our own: the dataset may be deleted while the run reads it.
        return target if _linked(here, target) else here
    try:
        _fetch(storage, rows.storage_key, target)
    except NotFound as error:
        message = f"The rows of dataset {rows.name} ({rows.id}) are not in storage any more."
        raise CannotStart(Cause(code=CauseCode.DATA_INVALID, message=message, param="dataset.train")) from error
    return target


def _resume(storage: Storage, folder: RunFolder, own: Sequence[Stored], start: Stored | None) -> ResumePoint | None:
    whole = [
        stored
        for stored in sorted(own, key=lambda stored: stored.step)
        if lay_checkpoint(storage, stored, folder.checkpoints)
    ]
    if whole:
        return _point(folder.checkpoints, whole[-1])
    if start is None:
        return None
    # Not among the run's own: the trainer sets aside what another job saved.
    place = folder.root / "start"
    if not lay_checkpoint(storage, start, place):
        message = f"The checkpoint of step {start.step} that the job starts from is not whole in storage."
        raise CannotStart(Cause(code=CauseCode.CHECKPOINT_INVALID, message=message, param="continue_from"))
    return _point(place, start)


def _point(place: Path, stored: Stored) -> ResumePoint:
    return ResumePoint(
        checkpoint=place / f"checkpoint-{stored.step}", manifest_sha256=stored.manifest_sha256, mode=stored.mode
    )


def lay_checkpoint(storage: Storage, stored: Stored, place: Path) -> bool:
    """Bring a checkpoint to `place`, under its name only when it is whole. False: it is not whole in storage."""
    target, coming = place / f"checkpoint-{stored.step}", place / f".coming-{stored.step}"
    shutil.rmtree(coming, ignore_errors=True)
    shutil.rmtree(target, ignore_errors=True)
    try:
        _fetch(storage, f"{stored.prefix}/{MANIFEST_NAME}", coming / MANIFEST_NAME)
        content = (coming / MANIFEST_NAME).read_bytes()
        if hashlib.sha256(content).hexdigest() != stored.manifest_sha256:
            raise NotFound("its manifest is not the listed one")
        for file in Manifest.model_validate_json(content).files:
            _fetch(storage, f"{stored.prefix}/{file.path}", coming / file.path)
            if (coming / file.path).stat().st_size != file.size_bytes:
                raise NotFound(f"{file.path} has another size than its manifest says")
    except NotFound as error:
        log.warning("checkpoint %s cannot be used: %s", stored.prefix, error)
        shutil.rmtree(coming, ignore_errors=True)
        return False
    coming.rename(target)
    return True


def _fetch(storage: Storage, key: str, target: Path) -> None:
    """By hard link where storage lies on the same file system, else by copy. Raises NotFound."""
    here = storage.local_path(key)
    if here is not None and _linked(here, target):
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(target, "wb") as file:
            for chunk in storage.open(key):
                file.write(chunk)
    except OSError as error:
        raise Unavailable(f"{target} cannot be written: {error.strerror}", code="disk_full") from error


def _linked(here: Path, target: Path) -> bool:
    """Whether `target` is a hard link of `here` now. False: another file system, one without links, or it is gone."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        target.unlink(missing_ok=True)
        os.link(here, target, follow_symlinks=False)
    except OSError:
        return False
    return True
