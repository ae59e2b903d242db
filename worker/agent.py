"""This machine as a node: registers it, beats, launches what was placed here, and finds again what lives here.

One `look` does all of it and may run at any time, twice at once, in any process of the machine: launches have one
winner in the database, and a run folder one supervisor by its lock.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import TimeoutExpired

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.core import attempts, events, nodes
from api.core.attempts import Lost, Outcome
from api.core.db import Database
from api.core.errors import NotFound, TrainyardError
from api.core.events import NewEvent
from api.core.settings import Settings
from api.core.specs import Resolved
from api.core.states import AttemptState
from api.core.storage import Storage
from api.core.tables import Attempt, Checkpoint, Device, Job, Node
from trainer_core.contract import Cause, CauseCode, RunFolder
from worker import folder as folders
from worker.detach import start_supervisor
from worker.inputs import CannotStart, Stored, bring_inputs, stored_start
from worker.inventory import find_devices, find_facts, n_cores
from worker.launchers import LAUNCHERS, Launcher
from worker.leader import LEADER_FILE
from worker.patience import Backoff
from worker.plan import PlacedDevice, RunPlan, make_config, make_plan, run_dir
from worker.process import start_leader

log = logging.getLogger(__name__)

# A supervisor that ends at once, again and again, before it has started anything.
MAX_STARTS = 5


@dataclass
class _Starts:
    """How often a supervisor was started for a run by this process, and when the next may be."""

    n: int
    not_before_s: float
    backoff: Backoff


class Agent:
    """`register` once, then `look` and `beat` every so often."""

    def __init__(
        self,
        db: Database,
        storage: Storage,
        settings: Settings,
        launchers: Mapping[str, Launcher] = LAUNCHERS,
    ) -> None:
        self._db = db
        self._storage = storage
        self._settings = settings
        self._launchers = launchers
        self._node_id: str | None = None
        self._starts: dict[str, _Starts] = {}

    def register(self) -> str:
        """Make this node known with the devices it has now; returns its id."""
        devices, facts = find_devices(self._settings), find_facts(self._settings)
        with self._db.session() as session:
            self._node_id = nodes.register(session, self._settings.node_name, devices, facts, labels={}).id
        return self._node_id

    def beat(self) -> None:
        if self._node_id is None:
            self.register()
        try:
            with self._db.session() as session:
                nodes.beat(session, self._node_id or "", find_facts(self._settings))
        except NotFound:  # the database was made anew
            self.register()

    def look(self) -> int:
        """Launch what was placed here and adopt what nobody supervises; returns how many supervisors were started."""
        node_id = self._node_id or self._find_node()
        if node_id is None:
            return 0
        with self._db.reading() as session:
            placed = [attempt.id for attempt in attempts.placed_on(session, node_id)]
        n_started = sum(self._launch(attempt_id) for attempt_id in placed)
        return n_started + sum(self._adopt(attempt_id, place) for attempt_id, place in self._runs_here(node_id))

    def ask_now(self, attempt_id: str) -> None:
        """Let the attempt's supervisor ask at once whether to stop, rather than at its next beat."""
        place = folders.live_runs(self._settings).get(attempt_id)
        if place is not None:
            (place / folders.BEAT_NOW_FILE).touch()

    def _find_node(self) -> str | None:
        with self._db.reading() as session:
            return session.scalar(select(Node.id).where(Node.name == self._settings.node_name))

    def _launch(self, attempt_id: str) -> bool:
        with self._db.session() as session:
            is_mine = attempts.claim_launch(session, attempt_id)
        return is_mine and self._bring_up(attempt_id)

    def _runs_here(self, node_id: str) -> list[tuple[str, Path | None]]:
        """Attempts that the database says live here, and those whose processes may live whatever it says."""
        alive = [AttemptState.LAUNCHED.value, AttemptState.RUNNING.value]
        query = select(Attempt.id).where(Attempt.node_id == node_id, Attempt.state.in_(alive))
        with self._db.reading() as session:
            known: dict[str, Path | None] = dict.fromkeys(session.scalars(query))
        return list((known | folders.live_runs(self._settings)).items())

    def _adopt(self, attempt_id: str, place: Path | None) -> bool:
        """Start a supervisor for a run that has none: it follows a living one and settles a dead one."""
        starts = self._starts.get(attempt_id)
        if starts is not None and time.monotonic() < starts.not_before_s:
            return False
        return self._bring_up(attempt_id, place)

    def _bring_up(self, attempt_id: str, place: Path | None = None) -> bool:
        """Lay the folder out if that was not done, and start a supervisor if there is none."""
        place = place or self._place_of(attempt_id)
        if place is None:
            return False
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        with folders.taken(place) as lock:
            if lock is None:
                return False
            try:
                plan = folders.read_plan(place) or self._lay_out(attempt_id, place)
                self._count_start(attempt_id, place)
                folders.mark_live(self._settings, attempt_id, place)
                # The run first: it need not wait for what follows it to be loaded.
                start_leader(place, plan.argv, plan.env, RunFolder(place).launcher_log)
                start_supervisor(self._settings, attempt_id, place, lock)
            except CannotStart as error:
                self._end_unlaunched(attempt_id, error.cause)
                return False
            except Lost:
                return False
            except (TrainyardError, OSError, RuntimeError, TimeoutExpired) as error:
                log.warning("attempt %s is not up yet: %s", attempt_id, error)
                self._not_up(attempt_id, place, error)
                return False
        log.info("attempt %s of job %s: supervisor started in %s", plan.attempt, plan.job_id, place)
        return True

    def _place_of(self, attempt_id: str) -> Path | None:
        with self._db.reading() as session:
            attempt = session.get(Attempt, attempt_id)
        return None if attempt is None else run_dir(self._settings, attempt.job_id, attempt.number)

    def _count_start(self, attempt_id: str, place: Path) -> None:
        starts = self._starts.setdefault(attempt_id, _Starts(0, 0.0, Backoff(self._settings.look_every_s, 60.0)))
        starts.n += 1
        starts.not_before_s = time.monotonic() + (starts.backoff.failed() if starts.n > 1 else 0.0)
        if starts.n > MAX_STARTS and not (place / LEADER_FILE).exists():
            raise CannotStart(_internal(f"The supervisor ended {MAX_STARTS} times before it had started the run."))

    def _not_up(self, attempt_id: str, place: Path, error: Exception) -> None:
        """Tried again at a later look, but not for ever where nothing has been started yet."""
        starts = self._starts.setdefault(attempt_id, _Starts(1, 0.0, Backoff(self._settings.look_every_s, 60.0)))
        if not (place / folders.LAUNCH_FILE).exists():
            starts.n += 1
            starts.not_before_s = time.monotonic() + starts.backoff.failed()
        if starts.n > MAX_STARTS and not (place / LEADER_FILE).exists():
            self._end_unlaunched(attempt_id, _internal(f"The run could not be laid out: {error}"))

    # Laying out a run

    def _lay_out(self, attempt_id: str, place: Path) -> RunPlan:
        self._require_room(place)
        with self._db.reading() as session:
            attempt = session.get_one(Attempt, attempt_id)
            job = session.get_one(Job, attempt.job_id)
            devices = _placed_devices(session, attempt)
            resolved = Resolved.model_validate(job.resolved)
            own = _own_checkpoints(session, job.id, resolved)
        inputs = bring_inputs(self._storage, resolved, RunFolder(place), own, stored_start(resolved))
        config = make_config(
            job_id=job.id,
            job_name=job.name,
            attempt=attempt.number,
            resolved=resolved,
            inputs=inputs,
            device=devices[0].kind,
            planned_steps=job.planned_steps or resolved.planned_steps,
        )
        plan = make_plan(
            config=config,
            attempt_id=attempt_id,
            folder=place,
            devices=devices,
            port=free_port(),
            settings=self._settings,
            launchers=self._launchers,
            environ=os.environ,
            n_cores=n_cores(),
            stall=resolved.stall,
        )
        folders.lay_out(plan, config)
        self._say_launched(plan, config.parallel.launcher, len(devices))
        return plan

    def _require_room(self, place: Path) -> None:
        free, needed = shutil.disk_usage(place).free, self._settings.min_free_disk_bytes
        if free < needed:
            message = f"The disk of the run folders has {free:,} bytes free; launches stop below {needed:,}."
            raise CannotStart(Cause(code=CauseCode.DISK_FULL, message=message, hint="Free space on that node."))

    def _say_launched(self, plan: RunPlan, launcher: str, n_processes: int) -> None:
        text = f"Starting {n_processes} {'process' if n_processes == 1 else 'processes'} with {launcher}"
        with self._db.session() as session:
            attempts.record_process(session, plan.attempt_id, run_folder=str(plan.run_dir))
            events.append(session, plan.job_id, [NewEvent("launched", f"{text} on {self._settings.node_name}")])

    def _end_unlaunched(self, attempt_id: str, cause: Cause) -> None:
        log.warning("attempt %s is not launched: %s", attempt_id, cause.message)
        cause = cause.model_copy(update={"host": self._settings.node_name})
        with self._db.session() as session:
            outcome = Outcome(result="launch_failed", cause=cause)
            attempts.end(session, attempt_id, outcome, settings=self._settings)
        folders.unmark_live(self._settings, attempt_id)


def free_port() -> int:
    """A port of the loopback address that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _internal(message: str) -> Cause:
    return Cause(code=CauseCode.INTERNAL, message=message, hint="See supervisor.log in the run folder on that node.")


def _placed_devices(session: Session, attempt: Attempt) -> list[PlacedDevice]:
    query = select(Device.index, Device.kind).where(Device.node_id == attempt.node_id)
    kinds = {row.index: row.kind for row in session.execute(query)}
    return [PlacedDevice.model_validate({"index": index, "kind": kinds[index]}) for index in attempt.devices]


def _own_checkpoints(session: Session, job_id: str, resolved: Resolved) -> list[Stored]:
    """Those it can go on from: optimizer states are cut to the strategy, which a lack of memory may have changed."""
    query = select(Checkpoint).where(Checkpoint.job_id == job_id)
    spread = resolved.parallel
    return [
        Stored(row.step, row.storage_prefix, row.manifest_sha256)
        for row in session.scalars(query)
        if (row.manifest["strategy"], row.manifest.get("zero_stage")) == (spread.strategy, spread.zero_stage)
    ]
