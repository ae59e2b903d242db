"""Rows that the tests of the core start from, written the shortest way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any, TypeVar

from sqlalchemy import select

from api.core import attempts, nodes
from api.core.db import Database
from api.core.ids import new_id
from api.core.states import State
from api.core.tables import Attempt, Device, Event, Job
from trainer_core.contract import Metrics, Started

T = TypeVar("T")
T0 = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def after(seconds: float) -> datetime:
    """An instant of the tests' own clock."""
    return T0 + timedelta(seconds=seconds)


def make_job(database: Database, state: State = State.QUEUED, **values: Any) -> str:
    job_id = new_id("job")
    defaults: dict[str, Any] = {"queued_at": T0 if state is not State.VALIDATING else None, "created_at": T0}
    with database.session() as session:
        session.add(
            Job(
                id=job_id,
                name="a job",
                state=state.value,
                method="sft",
                model_name="tiny",
                spec={},
                resolved={"metric_for_best": "eval_loss"},
                **({"created_by": "key"} | defaults | values),
            )
        )
    return job_id


def make_node(database: Database, n_devices: int = 2, name: str = "node1", at: datetime | None = None) -> str:
    found = [nodes.DeviceFact(index=index, kind="cpu", name="CPU slot") for index in range(n_devices)]
    with database.session() as session:
        return nodes.register(session, name, found, {}, {}, at=at).id


@dataclass(frozen=True)
class Run:
    job_id: str
    node_id: str
    attempt_id: str


def make_run(database: Database, *, launched: bool = True, started: bool = False, at: datetime = T0) -> Run:
    """A job placed on a node of its own, launched and started as asked."""
    node_id = make_node(database, 2, name=new_id("n"), at=at)
    job_id = make_job(database)
    with database.session() as session:
        attempt = attempts.place(session, job_id, node_id, [0, 1])
        assert attempt is not None
        attempt.placed_at = at
        attempt_id = attempt.id
    with database.session() as session:
        if launched or started:
            assert attempts.claim_launch(session, attempt_id, at=at)
        if started:
            attempts.take_records(session, attempt_id, [started_record(at=at)], at=at)
    return Run(job_id, node_id, attempt_id)


def started_record(seq: int = 1, at: datetime = T0, resumed_from_step: int | None = None) -> Started:
    return Started(seq=seq, at=at, world_size=2, device="cpu", resumed_from_step=resumed_from_step)


def metrics_record(seq: int, step: int, at: datetime | None = None, **values: float | str) -> Metrics:
    return Metrics(seq=seq, at=at or after(step), step=step, epoch=step / 10, values=values or {"loss": 1 / step})


def job_of(database: Database, job_id: str) -> Job:
    with database.reading() as session:
        return session.get_one(Job, job_id)


def attempt_of(database: Database, attempt_id: str) -> Attempt:
    with database.reading() as session:
        return session.get_one(Attempt, attempt_id)


def events_of(database: Database, job_id: str) -> list[Event]:
    with database.reading() as session:
        return list(session.scalars(select(Event).where(Event.job_id == job_id).order_by(Event.n)))


def holders(database: Database, node_id: str) -> list[str | None]:
    """What each device of the node is held by, in order."""
    with database.reading() as session:
        query = select(Device.attempt_id).where(Device.node_id == node_id).order_by(Device.index)
        return list(session.scalars(query))


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Runs the calls at the same moment, a thread each; an exception is raised here."""
    barrier = Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(run, call) for call in calls]]
