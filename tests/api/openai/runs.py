"""A job's life without a trainer: the core's own calls, in the order in which a node makes them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select

from api.core import attempts, preflights
from api.core.attempts import Outcome
from api.core.db import Database, now
from api.core.ids import new_id
from api.core.storage import Storage
from api.core.tables import Node
from tests.api.files.conftest import make_checkpoint
from trainer_core.contract import (
    Cause,
    CauseCode,
    Done,
    Evaluated,
    Metrics,
    Phase,
    PhaseChanged,
    PreflightReport,
    Started,
)


def queue_it(database: Database, job_id: str, trained_tokens: int = 1000) -> None:
    report = PreflightReport(ok=True, n_train_rows=40, planned_steps=10, trained_tokens=trained_tokens)
    with database.session() as session:
        assert preflights.claim(session, job_id, "test", 60) is not None
        assert preflights.finish(session, job_id, "test", report)


def start(database: Database, job_id: str) -> str:
    """Queued to running; the attempt's id."""
    with database.session() as session:
        node_id = session.scalars(select(Node.id)).one()
        attempt = attempts.place(session, job_id, node_id, [0])
        assert attempt is not None
        assert attempts.claim_launch(session, attempt.id)
    with database.session() as session:
        attempts.take_records(session, attempt.id, [Started(seq=1, at=now(), world_size=1, device="cpu")])
    return attempt.id


def train(database: Database, attempt_id: str, n_steps: int = 10, since: datetime | None = None) -> None:
    """Figures of every step, an evaluation at the last one."""
    at = since or now()
    records: list[Any] = [PhaseChanged(seq=2, at=at, phase=Phase.TRAINING)]
    for step in range(1, n_steps + 1):
        moment = at + timedelta(seconds=step)
        figures: dict[str, float | str] = {"loss": 2.0 / step, "learning_rate": 1e-4, "tokens_seen": 100.0 * step}
        records.append(Metrics(seq=step + 2, at=moment, step=step, epoch=3 * step / n_steps, values=figures))
    end = at + timedelta(seconds=n_steps + 1)
    records.append(Evaluated(seq=n_steps + 3, at=end, step=n_steps, epoch=3.0, values={"eval_loss": 0.5}))
    with database.session() as session:
        attempts.take_records(session, attempt_id, records)


def finish(database: Database, storage: Storage, job_id: str, attempt_id: str, n_steps: int = 10) -> None:
    make_checkpoint(database, storage, job_id, n_steps // 2, {"adapter_config.json": b"{}"})
    make_checkpoint(database, storage, job_id, n_steps, {"adapter_config.json": b"{}"})
    with database.session() as session:
        done = Done(seq=n_steps + 4, at=now(), step=n_steps, total_steps=n_steps, last_step=n_steps)
        attempts.take_records(session, attempt_id, [done])
        attempts.end(session, attempt_id, Outcome(result="succeeded", exit_code=0))


def fail(database: Database, attempt_id: str) -> None:
    cause = Cause(code=CauseCode.DATA_INVALID, message="row 3 is no row", hint="Mend it.", param="dataset.train")
    with database.session() as session:
        attempts.end(session, attempt_id, Outcome(result="died", exit_code=1, cause=cause))


def succeed(database: Database, storage: Storage, job_id: str) -> None:
    """The whole life of a job, to its good end."""
    queue_it(database, job_id)
    attempt_id = start(database, job_id)
    train(database, attempt_id)
    finish(database, storage, job_id, attempt_id)


__all__ = ["fail", "finish", "new_id", "queue_it", "start", "succeed", "train"]
