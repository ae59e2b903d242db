"""A node in a test: settings with short intervals, jobs that run the fake trainer, and a wait with a limit."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from sqlalchemy import select

from api.core import attempts, logs
from api.core.db import Database, now
from api.core.ids import new_id
from api.core.settings import Settings
from api.core.specs import Resolved
from api.core.states import State
from api.core.storage import LocalStorage
from api.core.tables import Artifact, Attempt, Checkpoint, Device, Event, Job, MetricRow
from trainer_core.contract import ParallelSpec
from worker.agent import Agent
from worker.launchers import Launch
from worker.process import Identity, members

FAKE_TRAINER = Path(__file__).resolve().parents[1] / "fake_trainer.py"
PATIENCE_S = 30.0


def fake_argv(launch: Launch) -> list[str]:
    return [sys.executable, str(FAKE_TRAINER), "launch", str(launch.run_dir), str(len(launch.devices))]


def short_settings(data_dir: Path, database_url: str, **values: Any) -> Settings:
    defaults: dict[str, Any] = {
        "beat_every_s": 0.1,
        "look_every_s": 0.2,
        "ship_every_s": 0.1,
        "attempt_lease_s": 20.0,
        "lost_after_s": 40.0,
        "stop_grace_s": 1.0,
        "term_grace_s": 0.3,
        "retry_backoff_s": 0.1,
        "min_free_disk_bytes": 0,
        "node_name": "node1",
        "cpu_slots": 2,
    }
    return Settings(data_dir=data_dir, database_url=SecretStr(database_url), **(defaults | values))


def wait_for(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    deadline = time.monotonic() + patience_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {patience_s:g} s for {what}"
        time.sleep(0.03)


class World:
    """One node on one database; what `agent` starts are real processes."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self.db = db
        self.settings = settings
        self.storage = LocalStorage(settings.storage_dir)
        self.agent = Agent(db, self.storage, settings, {"torchrun": fake_argv, "deepspeed": fake_argv})
        self.node_id = self.agent.register()
        rows = settings.data_dir / "rows.jsonl"
        rows.write_text('{"text": "a row"}\n')
        self.storage.put("datasets/rows", rows, link=False)

    def submit(self, n_processes: int = 1, state: State = State.QUEUED, **fake: Any) -> str:
        """A job whose fake trainer does what `fake` says."""
        training = {"fake": fake} if state is not State.VALIDATING else fake
        job_id = new_id("job")
        with self.db.session() as session:
            session.add(
                Job(
                    id=job_id,
                    name="a job",
                    state=state.value,
                    method="sft",
                    model_name="tiny",
                    spec={},
                    resolved=make_resolved(n_processes, fake.get("steps", 5), training).model_dump(mode="json"),
                    n_devices=n_processes,
                    created_by="key",
                    queued_at=None if state is State.VALIDATING else now(),
                )
            )
        return job_id

    def place(self, job_id: str) -> str:
        with self.db.session() as session:
            n_devices = session.get_one(Job, job_id).n_devices
            free = select(Device.index).where(Device.node_id == self.node_id, Device.attempt_id.is_(None))
            indexes = list(session.scalars(free.order_by(Device.index)))[:n_devices]
            attempt = attempts.place(session, job_id, self.node_id, indexes)
            assert attempt is not None
            return attempt.id

    def start(self, n_processes: int = 1, **fake: Any) -> tuple[str, str]:
        """A job placed and launched; its id and its attempt's."""
        job_id = self.submit(n_processes, **fake)
        attempt_id = self.place(job_id)
        assert self.agent.look() == 1
        return job_id, attempt_id

    def attempts(self, job_id: str) -> list[str]:
        query = select(Attempt.id).where(Attempt.job_id == job_id).order_by(Attempt.number)
        with self.db.reading() as session:
            return list(session.scalars(query))

    def job(self, job_id: str) -> Job:
        with self.db.reading() as session:
            return session.get_one(Job, job_id)

    def attempt(self, attempt_id: str) -> Attempt:
        with self.db.reading() as session:
            return session.get_one(Attempt, attempt_id)

    def events(self, job_id: str, kind: str | None = None) -> list[Event]:
        query = select(Event).where(Event.job_id == job_id).order_by(Event.n)
        with self.db.reading() as session:
            return [event for event in session.scalars(query) if kind in (None, event.kind)]

    def steps(self, job_id: str) -> list[int]:
        query = select(MetricRow.step).where(MetricRow.job_id == job_id, MetricRow.is_superseded.is_(False))
        with self.db.reading() as session:
            return list(session.scalars(query.order_by(MetricRow.n)))

    def checkpoints(self, job_id: str) -> dict[int, Checkpoint]:
        with self.db.reading() as session:
            return {row.step: row for row in session.scalars(select(Checkpoint).where(Checkpoint.job_id == job_id))}

    def artifacts(self, job_id: str) -> dict[str, Artifact]:
        with self.db.reading() as session:
            return {row.path: row for row in session.scalars(select(Artifact).where(Artifact.job_id == job_id))}

    def log_lines(self, job_id: str) -> list[dict[str, Any]]:
        with self.db.reading() as session:
            return logs.read(session, job_id, after=0, limit=100_000)

    def n_taken_devices(self) -> int:
        with self.db.reading() as session:
            return len(session.scalars(select(Device.index).where(Device.attempt_id.is_not(None))).all())

    def wait_until(self, job_id: str, *states: State, patience_s: float = PATIENCE_S) -> Job:
        try:
            return wait_for(lambda: _if_in(self.job(job_id), states), f"the job to become {states}", patience_s)
        except AssertionError:
            for log in sorted((self.settings.runs_dir / job_id).glob("*/supervisor.log")):
                print(log, log.read_text(), sep="\n")
            print([(event.kind, event.message) for event in self.events(job_id)][-10:])
            raise

    def wait_for_step(self, job_id: str, step: int) -> None:
        wait_for(lambda: self.job(job_id).step >= step, f"step {step}")

    def supervisor(self, attempt_id: str) -> Identity:
        wait_for(lambda: self.attempt(attempt_id).supervisor, "a supervisor")
        return Identity(**self.attempt(attempt_id).supervisor)  # type: ignore[arg-type]

    def leader(self, attempt_id: str) -> Identity:
        wait_for(lambda: self.attempt(attempt_id).launcher, "a leader")
        return Identity(**self.attempt(attempt_id).launcher)  # type: ignore[arg-type]

    def run_dir(self, attempt_id: str) -> Path:
        return Path(str(self.attempt(attempt_id).run_folder))

    def processes(self, attempt_id: str) -> list[Identity]:
        return members(self.leader(attempt_id), attempt_id)


def _if_in(job: Job, states: tuple[State, ...]) -> Job | None:
    return job if job.state in states else None


def make_resolved(n_processes: int, steps: int, training: dict[str, Any]) -> Resolved:
    return Resolved.model_validate(
        {
            "model": {"id": "model_x", "name": "tiny", "source": "/models/tiny"},
            "data": {
                "train": {
                    "id": "ds_x",
                    "name": "rows.jsonl",
                    "storage_key": "datasets/rows",
                    "sha256": "0" * 64,
                    "n_rows": 1,
                    "size_bytes": 18,
                },
                "format": "text",
                "max_length": 64,
                "n_train_rows": 1,
                "n_eval_rows": 0,
            },
            "training": training,
            "parallel": ParallelSpec(strategy="ddp", n_processes=n_processes).model_dump(mode="json"),
            "metric_for_best": "loss",
            "greater_is_better": False,
            "planned_steps": steps,
            "steps_per_epoch": steps,
            "global_batch_size": 2,
        }
    )


__all__ = ["World", "fake_argv", "make_resolved", "short_settings", "wait_for"]
