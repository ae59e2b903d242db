"""Checkpoints that a run left in storage: the list, which is best and which is last, and their files, held open.

The manifest in the database is the list of what may be read; a path that is not on it does not exist.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.core.errors import NotFound, Unavailable
from api.core.ids import is_id
from api.core.storage import Pinned, Storage
from api.core.tables import Checkpoint, Job
from trainer_core.contract import MANIFEST_NAME, Manifest, ManifestFile


@dataclass(frozen=True)
class Listed:
    checkpoint: Checkpoint
    manifest: Manifest
    is_best: bool
    is_last: bool


def job_of(session: Session, job_id: str) -> Job:
    """The job, or NotFound; a text that is no id never reaches the database."""
    job = session.get(Job, job_id) if is_id(job_id) else None
    if job is None:
        raise NotFound("no such job")
    return job


def listing(session: Session, job_id: str) -> list[Listed]:
    """The job's complete checkpoints by step. Best is best by a finite metric; last is the newest of the newest
    attempt that saved one. They may be the same, and there may be no best."""
    best_step = job_of(session, job_id).best_step
    found = list(session.scalars(select(Checkpoint).where(Checkpoint.job_id == job_id).order_by(Checkpoint.step)))
    last = max(found, key=lambda checkpoint: (checkpoint.attempt, checkpoint.step), default=None)
    return [
        Listed(
            checkpoint, Manifest.model_validate(checkpoint.manifest), checkpoint.step == best_step, checkpoint is last
        )
        for checkpoint in found
    ]


def pick(session: Session, job_id: str, which: str) -> Listed:
    """The checkpoint called `best`, `last`, or by its step."""
    for listed in listing(session, job_id):
        is_step = re.fullmatch(r"[0-9]{1,18}", which) is not None and int(which) == listed.checkpoint.step
        if is_step or (which == "best" and listed.is_best) or (which == "last" and listed.is_last):
            return listed
    expected = "expected best, last or the step of a checkpoint on the job's list"
    raise NotFound(f"the job has no such checkpoint (now); {expected}", code="no_such_checkpoint")


def pin_file(storage: Storage, listed: Listed, path: str) -> tuple[Pinned, ManifestFile]:
    """One file of the checkpoint, held open, and what the manifest says of it."""
    prefix = listed.checkpoint.storage_prefix
    if path == MANIFEST_NAME:
        pinned = storage.pin(f"{prefix}/{path}")
        return pinned, ManifestFile(path=path, size_bytes=pinned.size_bytes, sha256=listed.checkpoint.manifest_sha256)
    for file in listed.manifest.files:
        if file.path == path:
            return _pinned(storage, f"{prefix}/{path}", file), file
    raise NotFound("no such file")


def pin_all(storage: Storage, listed: Listed) -> list[tuple[str, Pinned]]:
    """Every file of the checkpoint with its manifest, all held open: none can go while the others are being sent."""
    with ExitStack() as opened:
        files = [*listed.manifest.files]
        paths = [file.path for file in files if file.path != MANIFEST_NAME]
        pinned = [(path, opened.enter_context(pin_file(storage, listed, path)[0])) for path in [*paths, MANIFEST_NAME]]
        opened.pop_all()
    return pinned


def _pinned(storage: Storage, key: str, file: ManifestFile) -> Pinned:
    pinned = storage.pin(key)
    if pinned.size_bytes != file.size_bytes:
        pinned.close()
        raise Unavailable(
            f"{file.path} has {pinned.size_bytes} bytes in storage and {file.size_bytes} in its manifest: it was "
            "changed after it was saved and is not sent; take another checkpoint",
            code="storage_changed",
        )
    return pinned
