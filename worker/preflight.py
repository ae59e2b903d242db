"""Preflight: claims a validating job, lets the trainer look at it on a CPU, and keeps what it found.

The look is a process of its own that dies with this one, is given a time limit, and steps back for trainings.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from api.core import preflights
from api.core.db import Database
from api.core.errors import TrainyardError
from api.core.settings import Settings
from api.core.specs import Resolved
from api.core.storage import Storage
from api.core.tables import Job
from trainer_core.contract import Cause, CauseCode, PreflightReport, RunFolder
from worker import tether
from worker.evidence import tail_of
from worker.folder import write_whole
from worker.inputs import CannotStart, bring_inputs, stored_start
from worker.inventory import find_gpus, n_cores
from worker.patience import AWAY
from worker.plan import make_config, make_env, tmp_dir_for

log = logging.getLogger(__name__)

MAX_TRIES = 3
N_TAIL_LINES = 30


class NotMine(Exception):
    """The job was cancelled, or another owner has it: what is found is of no use."""


@dataclass(frozen=True)
class Preflighter:
    """`program` is the command that gets the run folder as its last argument."""

    db: Database
    storage: Storage
    settings: Settings
    program: tuple[str, ...] = (sys.executable, "-P", "-m", "trainer_core.preflight.start")

    def run_one(self, job_id: str | None = None) -> str | None:
        """Preflight one job, or the oldest that waits; returns its id, None where nothing is to be done."""
        owner = f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"
        with self.db.session() as session:
            job = preflights.claim(session, job_id, owner, self.settings.attempt_lease_s)
        if job is None:
            return None
        place = self.settings.runs_dir / job.id / "preflight"
        try:
            report = self._report(job, place, owner)
        except NotMine:
            return job.id
        finally:
            shutil.rmtree(place, ignore_errors=True)
            shutil.rmtree(tmp_dir_for(place, job.id), ignore_errors=True)
        with self.db.session() as session:
            preflights.finish(session, job.id, owner, report)
        return job.id

    def _report(self, job: Job, place: Path, owner: str) -> PreflightReport:
        try:
            return self._look(job, place, owner)
        except CannotStart as error:
            return PreflightReport(ok=False, cause=error.cause)
        except (TrainyardError, OSError) as error:
            log.warning("preflight of %s: %s", job.id, error)
            message = f"The check before the start could not be made: {error}"
            return PreflightReport(ok=False, cause=Cause(code=CauseCode.STORAGE_UNAVAILABLE, message=message))

    def _look(self, job: Job, place: Path, owner: str) -> PreflightReport:
        folder, tmp_dir = RunFolder(place), tmp_dir_for(place, job.id)
        shutil.rmtree(place, ignore_errors=True)
        for path in (folder.logs, tmp_dir):
            path.mkdir(parents=True, mode=0o700, exist_ok=True)
        self._write_config(job, folder)
        env = make_env(self.settings, os.environ, folder=place, tmp_dir=tmp_dir, n_cores=n_cores())
        env["CUDA_VISIBLE_DEVICES"] = ""
        for number in range(1, MAX_TRIES + 1):
            is_in_time = self._run_program(folder, env, lambda: self._renew(job.id, owner))
            if not is_in_time:
                return PreflightReport(ok=False, cause=self._timeout())
            report = _read_report(folder.preflight)
            if report is not None:
                return report
            log.warning("preflight of %s left no report, try %d of %d", job.id, number, MAX_TRIES)
        return PreflightReport(ok=False, cause=_crash(folder))

    def _write_config(self, job: Job, folder: RunFolder) -> None:
        resolved = Resolved.model_validate(job.resolved)
        config = make_config(
            job_id=job.id,
            job_name=job.name,
            attempt=0,
            resolved=resolved,
            inputs=bring_inputs(self.storage, resolved, folder, [], stored_start(resolved)),
            device="cuda" if find_gpus() else "cpu",
            planned_steps=None,
        )
        write_whole(folder.config, config.model_dump_json(indent=2))

    def _run_program(self, folder: RunFolder, env: dict[str, str], renew: Callable[[], None]) -> bool:
        """False: it did not end in time, and was killed."""
        with open(folder.logs / "preflight.log", "wb") as out:
            child = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    str(Path(tether.__file__)),
                    str(os.getpid()),
                    *self.program,
                    str(folder.root),
                ],
                cwd=folder.root,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            return self._waited(child, renew)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # also what it may have left behind
            child.wait()

    def _waited(self, child: subprocess.Popen[bytes], renew: Callable[[], None]) -> bool:
        """Whether it ended in time; the claim is renewed meanwhile, so a lease is short and a dead owner soon found."""
        deadline = time.monotonic() + self.settings.preflight_timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            try:
                child.wait(min(left_s, self.settings.attempt_lease_s / 4))
            except subprocess.TimeoutExpired:
                renew()
            else:
                return True
        return False

    def _renew(self, job_id: str, owner: str) -> None:
        try:
            with self.db.session() as session:
                is_mine = preflights.renew(session, job_id, owner, self.settings.attempt_lease_s)
        except AWAY as error:
            log.warning("the claim of %s was not renewed: %s", job_id, error)
            return
        if not is_mine:
            raise NotMine

    def _timeout(self) -> Cause:
        return Cause(
            code=CauseCode.TIMEOUT,
            message=f"The check before the start took more than {self.settings.preflight_timeout_s:g} s.",
            hint="Use fewer or shorter rows, or raise the setting preflight_timeout_s.",
        )


def _read_report(path: Path) -> PreflightReport | None:
    try:
        return PreflightReport.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        log.warning("%s is no report: %s", path, error)
        return None


def _crash(folder: RunFolder) -> Cause:
    lines = [line for line in tail_of(folder.logs / "preflight.log").splitlines() if line.strip()]
    return Cause(
        code=CauseCode.INTERNAL,
        message=f"The check before the start crashed {MAX_TRIES} times: {lines[-1][:300] if lines else 'no output'}",
        hint="The end of its output is in details.log_tail.",
        details={"log_tail": lines[-N_TAIL_LINES:]},
    )
