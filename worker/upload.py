"""Brings checkpoints and the run's other files into storage, beside the training, on a thread of its own.

A checkpoint is listed once every file of its manifest is in storage at its size; what retention let go is taken off.
Whatever fails is tried again: the files are still in the run folder.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from api.core import attempts
from api.core.attempts import Lost
from api.core.db import Database
from api.core.errors import Invalid, TrainyardError, Unavailable
from api.core.storage import Storage
from api.core.tables import Checkpoint
from trainer_core.contract import (
    MANIFEST_NAME,
    Cause,
    CauseCode,
    CheckpointRemoved,
    CheckpointSaved,
    Manifest,
    RunFolder,
)
from worker.patience import Backoff
from worker.plan import RunPlan

log = logging.getLogger(__name__)

# Folder in the run folder where a checkpoint is held by hard links while it is uploaded: the trainer may let it go at
# any moment.
HELD = "held"


class BrokenCheckpoint(Exception):
    """What lies in the folder is not what the record and the manifest say."""


@dataclass(frozen=True)
class Listed:
    """A checkpoint as the database lists it."""

    attempt: int
    manifest_sha256: str


class Uploader:
    """`take` is called where records are read; the rest runs on a thread until everything taken is in storage."""

    def __init__(self, db: Database, storage: Storage, plan: RunPlan, patience_s: float) -> None:
        self.uploaded: dict[int, str] = {}  # step -> digest of the manifest in storage
        self.inherited: dict[int, str] = {}  # the same, of earlier attempts
        self.warnings: list[str] = []
        self.problem: Cause | None = None
        self.is_lost = False
        self._db = db
        self._storage = storage
        self._plan = plan
        self._folder = RunFolder(plan.run_dir)
        self._patience_s = patience_s
        self._work: deque[Callable[[], None]] = deque()
        self._wake = threading.Event()
        self._closed_at: float | None = None
        self._backoff = Backoff(first_s=0.2, longest_s=10.0)
        self._thread = threading.Thread(target=self._run, name="uploader", daemon=True)

    def start(self, listed: Mapping[int, Listed]) -> None:
        """`listed`: the job's checkpoints in storage, of earlier attempts and of an earlier supervisor of this one."""
        self.uploaded = {step: found.manifest_sha256 for step, found in listed.items()}
        self.inherited = {
            step: found.manifest_sha256 for step, found in listed.items() if found.attempt != self._plan.attempt
        }
        self._thread.start()

    def take(self, record: CheckpointSaved | CheckpointRemoved) -> None:
        """Hold a checkpoint that was just announced, to be uploaded; or note that one was let go."""
        if isinstance(record, CheckpointRemoved):
            self._work.append(lambda: self._remove(record.step))
        elif self.uploaded.get(record.step) != record.manifest_sha256:
            held = self._hold(record)
            if held is not None:
                self._work.append(lambda: self._upload_checkpoint(record, held))
        self._wake.set()

    def take_file(self, path: Path, name: str) -> None:
        """An artifact that people should see before the run has ended."""
        self._work.append(lambda: self._upload_artifact(path, name))
        self._wake.set()

    def close(self) -> None:
        """The run is gone and nothing more is taken: finish, then the artifacts."""
        self._work.extend(
            [
                lambda path=path, name=name: self._upload_artifact(path, name)  # type: ignore[misc]
                for path, name in self._artifacts()
            ]
        )
        self._closed_at = time.monotonic()
        self._wake.set()

    @property
    def is_finished(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._until_closed()
        except Exception as error:  # the thread ends here, and the outcome will say why
            log.exception("the uploader failed")
            self.problem = Cause(code=CauseCode.INTERNAL, message=f"The upload failed: {type(error).__name__}: {error}")

    def _until_closed(self) -> None:
        while not self.is_lost:
            if self._work:
                self._try(self._work[0])
            elif self._closed_at is not None:
                return
            else:
                self._wake.wait()
                self._wake.clear()

    def _try(self, work: Callable[[], None]) -> None:
        """Do one piece, or keep it for later; after the run has ended it is given up in the end."""
        try:
            work()
        except Lost:
            self.is_lost = True
        except (BrokenCheckpoint, Invalid) as error:
            self._skip(str(error))
        except (SQLAlchemyError, TrainyardError, OSError) as error:
            self.problem = _cause_of(error)
            log.warning("upload failed, will be tried again: %s", error)
            if self._closed_at is not None and time.monotonic() - self._closed_at > self._patience_s:
                self._skip(f"given up: {error}")
            else:
                self._wake.wait(self._backoff.failed())
                self._wake.clear()
        else:
            self._work.popleft()
            self._backoff.worked()

    def _skip(self, message: str) -> None:
        log.warning(message)
        self.warnings.append(message)
        self._work.popleft()

    # Checkpoints

    def _hold(self, record: CheckpointSaved) -> Path | None:
        """A folder with the checkpoint's files that nobody else takes away; None when it is going or gone already."""
        source, target = self._folder.checkpoints / record.name, self._folder.root / HELD / record.name
        shutil.rmtree(target, ignore_errors=True)
        try:
            manifest = Manifest.model_validate_json((source / MANIFEST_NAME).read_bytes())
            for path in [*(file.path for file in manifest.files), MANIFEST_NAME]:
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                os.link(source / path, target / path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            shutil.rmtree(target, ignore_errors=True)
            return None
        except (OSError, ValidationError) as error:
            log.info("%s is uploaded from where it is, it cannot be held by links: %s", record.name, error)
            shutil.rmtree(target, ignore_errors=True)
            return source
        return target

    def _upload_checkpoint(self, record: CheckpointSaved, held: Path) -> None:
        if not held.exists():
            return  # let go by the trainer before it could be uploaded, where links are not to be had
        manifest = _checked_manifest(record, held)
        prefix = f"jobs/{self._plan.job_id}/checkpoints/{record.step}/attempt-{self._plan.attempt}"
        for file in manifest.files:
            self._storage.put(f"{prefix}/{file.path}", held / file.path)
            if self._storage.size(f"{prefix}/{file.path}") != file.size_bytes:
                raise Unavailable(f"{file.path} of {record.name} came out with another size", code="storage_changed")
        self._storage.put(f"{prefix}/{MANIFEST_NAME}", held / MANIFEST_NAME)
        with self._db.session() as session:
            former = self._prefix(session, record.step)
            attempts.add_checkpoint(
                session, self._plan.attempt_id, manifest, record.manifest_sha256, prefix, record.is_best
            )
        if former is not None and former != prefix:
            self._storage.delete_prefix(former)
        self.uploaded[record.step] = record.manifest_sha256
        if held != self._folder.checkpoints / record.name:
            shutil.rmtree(held)

    def _remove(self, step: int) -> None:
        with self._db.session() as session:
            prefix = self._prefix(session, step)
            attempts.remove_checkpoint(session, self._plan.attempt_id, step)
        self.uploaded.pop(step, None)
        if prefix is not None:
            self._storage.delete_prefix(prefix)

    def _prefix(self, session: Session, step: int) -> str | None:
        """Where the job's checkpoint of this step lies, of whatever attempt."""
        query = select(Checkpoint.storage_prefix).where(Checkpoint.job_id == self._plan.job_id, Checkpoint.step == step)
        return session.scalar(query)

    # Artifacts

    def _artifacts(self) -> Iterator[tuple[Path, str]]:
        for path in sorted(self._folder.output.rglob("*")):
            if path.is_file() and not path.is_symlink():
                yield path, path.relative_to(self._folder.output).as_posix()
        for path in sorted(self._folder.logs.glob("*.log")):
            yield path, f"logs/attempt-{self._plan.attempt}/{path.name}"

    def _upload_artifact(self, path: Path, name: str) -> None:
        key = f"jobs/{self._plan.job_id}/artifacts/attempt-{self._plan.attempt}/{name}"
        # A log is never shared with the run folder: whoever still holds it open would write into what is stored.
        self._storage.put(key, path, link=path.parent != self._folder.logs)
        with self._storage.pin(key) as stored:
            size_bytes, sha256 = stored.size_bytes, _digest(stored.read())
        with self._db.session() as session:
            attempts.add_artifact(session, self._plan.attempt_id, name, key, size_bytes, sha256)


def _checked_manifest(record: CheckpointSaved, held: Path) -> Manifest:
    content = (held / MANIFEST_NAME).read_bytes()
    if hashlib.sha256(content).hexdigest() != record.manifest_sha256:
        raise BrokenCheckpoint(f"{record.name}: its manifest is not the one the trainer told of; it is not listed")
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as error:
        raise BrokenCheckpoint(f"{record.name}: its manifest cannot be read; it is not listed") from error
    for file in manifest.files:
        found = (held / file.path).stat().st_size
        if found != file.size_bytes:
            raise BrokenCheckpoint(
                f"{record.name}: {file.path} has {found} bytes, its manifest says {file.size_bytes}; it is not listed"
            )
    return manifest


def _digest(chunks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _cause_of(error: Exception) -> Cause:
    is_full = isinstance(error, Unavailable) and error.code == "disk_full"
    code = CauseCode.DISK_FULL if is_full else CauseCode.STORAGE_UNAVAILABLE
    return Cause(
        code=code,
        message=f"What the run saved could not be brought into storage: {error}",
        hint="Free space in the storage, or see that it answers; then let the job run again.",
    )
