"""Exports on a CPU lane: claims one, lets the trainer carry it out in a process of its own, keeps the files.

The process dies with this one, steps back for trainings, and ends when the export is cancelled. What fails for a reason
of the checkpoint's fails once; what crashes is tried again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from api.core import checkpoints, exports, jobs
from api.core.checkpoints import Listed
from api.core.db import Database
from api.core.errors import NotFound, TrainyardError
from api.core.export_tables import Export
from api.core.settings import Settings
from api.core.specs import Resolved
from api.core.storage import Storage
from api.core.tables import Job
from trainer_core.contract import Cause, CauseCode, ManifestFile, Note, RunConfig, RunFolder, parse_record
from trainer_core.export.order import ORDER_NAME, REPORT_NAME, ExportOrder, ExportReport
from worker import tether
from worker.evidence import tail_of
from worker.folder import write_whole
from worker.inputs import Stored, lay_checkpoint
from worker.inventory import n_cores
from worker.patience import AWAY
from worker.plan import Inputs, make_config, make_env, tmp_dir_for

log = logging.getLogger(__name__)

RENEW_EVERY_S = 1.0
N_TAIL_LINES = 30


class NotMine(Exception):
    """The export was cancelled, or another owner has it: what is made is of no use."""


@dataclass(frozen=True)
class ExportRunner:
    """`program` is the command that gets the run folder as its last argument."""

    db: Database
    storage: Storage
    settings: Settings
    program: tuple[str, ...] = (sys.executable, "-P", "-m", "trainer_core", "export")

    def run_one(self) -> str | None:
        """Carry out the oldest export that waits; returns its id, None where nothing is to be done."""
        owner = f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"
        with self.db.session() as session:
            row = exports.claim(session, owner, self.settings.attempt_lease_s)
        if row is None:
            return None
        place = self.settings.runs_dir / row.job_id / row.id
        try:
            self._carry_out(row, RunFolder(place), owner)
        except NotMine:
            self.storage.delete_prefix(_prefix(row))
        except (TrainyardError, OSError) as error:
            log.warning("export %s: %s", row.id, error)
            self._again_or_fail(row, owner, CauseCode.STORAGE_UNAVAILABLE, f"The export could not be made: {error}")
        finally:
            shutil.rmtree(place, ignore_errors=True)
            shutil.rmtree(tmp_dir_for(place, row.id), ignore_errors=True)
        return row.id

    def _carry_out(self, row: Export, folder: RunFolder, owner: str) -> None:
        with self.db.reading() as session:
            job = jobs.get(session, row.job_id)
            try:
                listed = checkpoints.pick(session, row.job_id, str(row.step))
            except NotFound:
                listed = None
        tmp_dir = tmp_dir_for(folder.root, row.id)
        shutil.rmtree(folder.root, ignore_errors=True)
        for path in (folder.logs, folder.checkpoints, tmp_dir):
            path.mkdir(parents=True, mode=0o700, exist_ok=True)
        if listed is None or not lay_checkpoint(self.storage, _stored(listed), folder.checkpoints):
            message = f"The checkpoint of step {row.step} is not whole in storage any more."
            self._fail(row, owner, Cause(code=CauseCode.CHECKPOINT_INVALID, message=message, param="checkpoint"))
            return
        write_whole(folder.root / ORDER_NAME, _order(row, job, listed, folder).model_dump_json(indent=2))
        self._run_program(row, folder, tmp_dir, owner)
        report = _read_report(folder.root / REPORT_NAME)
        if report is None:
            lines = [line for line in tail_of(folder.logs / "export.log").splitlines() if line.strip()]
            message = f"The export's process ended without a report: {lines[-1][:300] if lines else 'no output'}"
            self._again_or_fail(row, owner, CauseCode.INTERNAL, message, {"log_tail": lines[-N_TAIL_LINES:]})
        elif report.cause is not None:
            self._fail(row, owner, report.cause)
        else:
            self._keep(row, folder, owner, report)

    def _run_program(self, row: Export, folder: RunFolder, tmp_dir: Path, owner: str) -> None:
        env = make_env(self.settings, os.environ, folder=folder.root, tmp_dir=tmp_dir, n_cores=n_cores())
        env |= {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
        leash = [sys.executable, "-I", "-S", str(Path(tether.__file__)), str(os.getpid())]
        with open(folder.logs / "export.log", "wb") as out:
            child = subprocess.Popen(
                [*leash, *self.program, str(folder.root)],
                cwd=folder.root,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        told = 0
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(RENEW_EVERY_S)
                told = self._renew(row, owner, _notes(folder.events), told)
                if child.returncode is not None:
                    return
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # also what it may have left behind
            child.wait()

    def _renew(self, row: Export, owner: str, notes: list[str], told: int) -> int:
        """Raises NotMine. A database that is away is no reason to stop: the lease says how long."""
        try:
            with self.db.session() as session:
                is_mine = exports.renew(session, row, owner, self.settings.attempt_lease_s, notes[told:])
        except AWAY as error:
            log.warning("the claim of %s was not renewed: %s", row.id, error)
            return told
        if not is_mine:
            raise NotMine
        return len(notes)

    def _keep(self, row: Export, folder: RunFolder, owner: str, report: ExportReport) -> None:
        """Into storage, then on the list: whole or not at all."""
        prefix = _prefix(row)
        self.storage.delete_prefix(prefix)
        files = []
        for path in sorted(path for path in folder.output.rglob("*") if path.is_file() and not path.is_symlink()):
            name = path.relative_to(folder.output).as_posix()
            with path.open("rb") as stream:
                sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            self.storage.put(f"{prefix}/{name}", path)
            files.append(ManifestFile(path=name, size_bytes=path.stat().st_size, sha256=sha256))
            self._renew(row, owner, [], 0)
        with self.db.session() as session:
            is_kept = exports.succeed(session, row, owner, files, report.proof, prefix)
        if not is_kept:
            raise NotMine

    def _fail(self, row: Export, owner: str, cause: Cause) -> None:
        with self.db.session() as session:
            exports.fail_mine(session, row, owner, cause)

    def _again_or_fail(
        self, row: Export, owner: str, code: CauseCode, message: str, details: dict[str, list[str]] | None = None
    ) -> None:
        if row.n_tries >= exports.MAX_TRIES:
            self._fail(row, owner, Cause(code=code, message=message, details=dict(details or {})))
            return
        log.warning("export %s, try %d of %d: %s", row.id, row.n_tries, exports.MAX_TRIES, message)
        with self.db.session() as session:
            exports.give_back(session, row, owner)


def _prefix(row: Export) -> str:
    """Of this try alone: an owner that was thought dead may still be writing."""
    return f"{exports.prefix_of(row)}/try-{row.n_tries}"


def _stored(listed: Listed) -> Stored:
    row = listed.checkpoint
    return Stored(row.step, row.storage_prefix, row.manifest_sha256)


def _order(row: Export, job: Job, listed: Listed, folder: RunFolder) -> ExportOrder:
    return ExportOrder.model_validate(
        {
            "config": _config(job, listed.checkpoint.attempt, folder),
            "checkpoint": folder.checkpoint(row.step),
            "manifest_sha256": listed.checkpoint.manifest_sha256,
            **{name: getattr(row, name) for name in ("kind", "dtype", "max_shard_size")},
        }
    )


def _config(job: Job, attempt: int, folder: RunFolder) -> RunConfig:
    """Of the run that saved the checkpoint; its rows are not brought here, for none is read."""
    resolved = Resolved.model_validate(job.resolved)
    rows = folder.root / "data"
    return make_config(
        job_id=job.id,
        job_name=job.name,
        attempt=attempt,
        resolved=resolved,
        inputs=Inputs(train=rows, eval=rows if resolved.data.eval else None),
        device=resolved.device,
        planned_steps=job.planned_steps,
    )


def _notes(path: Path) -> list[str]:
    """What the process has said so far; a last line that is still being written waits."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    records = [parse_record(line) for line in lines if line.endswith(b"\n")]
    return [record.message for record in records if isinstance(record, Note)]


def _read_report(path: Path) -> ExportReport | None:
    try:
        return ExportReport.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        log.warning("%s is no report: %s", path, error)
        return None
