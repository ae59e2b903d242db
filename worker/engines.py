"""Engines on this node: claimed with their device, each followed by a thread, ended by their process or with it.

The engine is a child that dies with the thread that follows it, so that no process outlives its owner; it is spoken
to over its own standard input and output and listens on nothing.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from api.core import checkpoints, engines, jobs
from api.core.checkpoints import Listed
from api.core.db import Database
from api.core.engine_tables import Engine
from api.core.errors import NotFound, TrainyardError
from api.core.settings import Settings
from api.core.specs import Resolved
from api.core.storage import Storage
from api.core.tables import BaseModel
from trainer_core.contract import Cause, CauseCode, ModelSource
from trainer_core.methods_table import METHODS
from trainer_core.serve.order import ORDER_NAME, ServeOrder
from worker.engine_process import PROGRAM, EngineProcess, Placed
from worker.folder import write_whole
from worker.inputs import Stored, lay_checkpoint
from worker.patience import AWAY
from worker.plan import Inputs, make_config
from worker.process import Identity
from worker.talk import Talk

log = logging.getLogger(__name__)


class CannotServe(Exception):
    """The engine cannot be started; `cause` says why."""

    def __init__(self, code: CauseCode, message: str) -> None:
        super().__init__(message)
        self.cause = Cause(code=code, message=message, param="model")


@dataclass
class EngineHost:
    """`look` every so often. Everything that lives here is `talks`, by the engine's id."""

    db: Database
    storage: Storage
    settings: Settings
    program: Sequence[str] = PROGRAM
    talks: dict[str, Talk] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def owner(self) -> str:
        """This process, beyond its pid."""
        me = Identity.of(os.getpid())
        assert me is not None
        return f"{me.pid}:{me.started}:{me.boot}"

    def look(self) -> int:
        """Settle what died, make room, start what waits; returns how many engines were started."""
        with self._lock:
            self._settle()
            self._make_room()
            n_started = 0
            while len(self.talks) < self.settings.max_engines and self._start_one():
                n_started += 1
            return n_started

    def end_all(self) -> None:
        for talk in list(self.talks.values()):
            talk.leave.set()

    def _settle(self) -> None:
        """End what an earlier process of this node left, once its engine is gone for certain, and what fell silent."""
        with self.db.reading() as session:
            held = engines.held_on(session, self.settings.node_name)
            lost = engines.silent(session, self.settings.lost_after_s)
        gone = [row.id for row in held if row.id not in self.talks and not _lives(row.owner) and _is_gone(row.process)]
        for engine_id in {*gone, *lost}:
            message = "The agent that ran the engine ended; ask again to start another."
            with self.db.session() as session:
                engines.end(session, engine_id, Cause(code=CauseCode.NODE_LOST, message=message))
            shutil.rmtree(self._place(engine_id), ignore_errors=True)
        with self.db.session() as session:
            engines.forget_old(session)

    def _make_room(self) -> None:
        """An engine that nobody asks gives way to one that waits, and its device to a job that waits."""
        with self.db.reading() as session:
            is_wanted, jobs_wait = engines.waiting(session), engines.jobs_wait(session)
        idle = sorted((talk for talk in self.talks.values() if talk.is_idle), key=lambda talk: talk.used_at_s)
        if is_wanted and len(self.talks) >= self.settings.max_engines and idle:
            idle[0].leave.set()
        for talk in idle:
            if jobs_wait and talk.holds_device:
                talk.leave.set()

    def _start_one(self) -> bool:
        with self.db.session() as session:
            row = engines.claim(session, self.settings.node_name, self.owner, self.settings.attempt_lease_s)
        if row is None:
            return False
        talk = Talk(self.db, self.settings, row.id, self.owner, holds_device=row.device_index is not None)
        self.talks[row.id] = talk
        threading.Thread(target=self._follow, args=(row, talk), name=row.id, daemon=True).start()
        return True

    def _follow(self, row: Engine, talk: Talk) -> None:
        """In a thread of its own, which must live as long as the engine: the kernel ends the engine with it."""
        place, cause = self._place(row.id), None
        try:
            write_order(self._order(row, place), place)
            placed = Placed(place, row.id, row.device_index)
            with EngineProcess(placed, self.settings, self.program) as process:
                cause = talk.run(process)
        except CannotServe as error:
            cause = error.cause
        except (TrainyardError, OSError, RuntimeError) as error:
            log.warning("engine %s: %s", row.id, error)
            cause = Cause(code=CauseCode.INTERNAL, message=f"The engine could not be started: {error}")
        except Exception:  # the thread ends here, and the engine's row says so
            log.exception("engine %s", row.id)
            cause = Cause(code=CauseCode.INTERNAL, message="The engine ended; see the agent's log.")
        shutil.rmtree(place, ignore_errors=True)
        self._end(row.id, cause, talk.leave.wait)
        self.talks.pop(row.id, None)

    def _end(self, engine_id: str, cause: Cause | None, wait: Callable[[float], bool]) -> None:
        """Until the database has heard of it: the device is free only then."""
        while True:
            try:
                with self.db.session() as session:
                    engines.end(session, engine_id, cause, owner=self.owner)
            except AWAY as error:
                log.warning("the end of %s is not told yet: %s", engine_id, error)
                wait(self.settings.look_every_s)
            else:
                return

    def _place(self, engine_id: str) -> Path:
        return self.settings.runs_dir / "engines" / engine_id

    # What is served

    def _order(self, row: Engine, place: Path) -> ServeOrder:
        kind, target, step = (*row.target.split(":"), "")[:3]
        device = "cpu" if row.device_index is None else "cuda"
        own = {"device": device, "idle_s": self.settings.engine_idle_s, "max_waiting": self.settings.engine_queue}
        if kind == "model":
            return ServeOrder.model_validate({"model": self._base(target), **own})
        return ServeOrder.model_validate({**self._tuned(target, step, place), **own})

    def _base(self, model_id: str) -> ModelSource:
        with self.db.reading() as session:
            model = session.get(BaseModel, model_id)
        if model is None:
            raise CannotServe(CauseCode.MODEL_UNAVAILABLE, "The model was deleted.")
        return ModelSource(name=model.name, source=model.source, revision=model.revision)

    def _tuned(self, job_id: str, step: str, place: Path) -> dict[str, object]:
        with self.db.reading() as session:
            job = jobs.get(session, job_id)
            try:
                listed = checkpoints.pick(session, job_id, step)
            except NotFound:
                listed = None
        if listed is None or not lay_checkpoint(self.storage, _stored(listed), place):
            raise CannotServe(CauseCode.CHECKPOINT_INVALID, f"The checkpoint of step {step} is not whole in storage.")
        resolved = Resolved.model_validate(job.resolved)
        rows = Inputs(train=place / "rows", eval=place / "rows" if resolved.data.eval else None)
        config = make_config(
            job_id=job.id,
            job_name=job.name,
            attempt=listed.checkpoint.attempt,
            resolved=resolved,
            inputs=rows,
            device=resolved.device,
            planned_steps=job.planned_steps,
        )
        is_plain = config.data.render == "plain" or config.data.format == "text"
        return {
            "model": config.model,
            "kind": METHODS[config.method].kind,
            "checkpoint": place / f"checkpoint-{listed.checkpoint.step}",
            "manifest_sha256": listed.checkpoint.manifest_sha256,
            "quantization": config.quantization,
            "render": "plain" if is_plain else "auto",
        }


def write_order(order: ServeOrder, place: Path) -> None:
    place.mkdir(parents=True, mode=0o700, exist_ok=True)
    write_whole(place / ORDER_NAME, order.model_dump_json(indent=2))


def _stored(listed: Listed) -> Stored:
    row = listed.checkpoint
    return Stored(row.step, row.storage_prefix, row.manifest_sha256)


def _lives(owner: str | None) -> bool:
    pid, started, boot = (owner or "0:0:").split(":")
    return Identity(int(pid), int(started), boot).is_alive()


def _is_gone(process: dict[str, object] | None) -> bool:
    return process is None or not Identity(**process).is_alive()  # type: ignore[arg-type]
