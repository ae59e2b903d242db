"""Any interleaving of what users, workers and the sweep do keeps the rows consistent."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, func, select

from api.core import attempts, dependencies, nodes, preflights, queue, scheduling, sweeping
from api.core.again import JobPatch, change
from api.core.attempts import Lost, Outcome
from api.core.db import Database
from api.core.dependency_tables import JobDependency
from api.core.errors import Conflict, Invalid
from api.core.moves import request_cancel
from api.core.settings import Settings
from api.core.states import ON_DEVICES, TERMINAL, AttemptState, NodeState, State
from api.core.tables import Attempt, Base, Device, Event, Job, Node
from api.core.wishes import request_leave, request_pause, request_resume
from tests.api.core.rows import after, make_job, make_node, metrics_record, started_record
from trainer_core.contract import Cause, CauseCode, PreflightReport

OUTCOMES = [
    Outcome(result="succeeded", exit_code=0),
    Outcome(result="stopped", exit_code=75),
    Outcome(result="died", signal=9),
    Outcome(result="launch_failed"),
    Outcome(result="failed", exit_code=1, cause=Cause(code=CauseCode.DATA_INVALID, message="bad row")),
]
ON_JOBS = ["preflight", "place", "cancel", "pause", "resume", "preempt", "change"]
ON_ATTEMPTS = ["claim", "records", "beat", "end"]
KINDS = ["job", "wait", "hold", "look", *ON_JOBS, *ON_ATTEMPTS]


class Step(NamedTuple):
    """One thing that happens, to one of the jobs or attempts there are."""

    kind: str
    which: int
    choice: int


steps = st.builds(Step, st.sampled_from(KINDS), st.integers(0, 5), st.integers(0, 7))


@dataclass
class World:
    database: Database
    settings: Settings
    nodes: list[str]
    jobs: list[str] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)
    clock_s: float = 0
    finals: dict[str, str] = field(default_factory=dict)

    def take(self, step: Step) -> None:
        if step.kind == "job":
            self._make_job(step)
        elif step.kind == "hold":
            self._hold(self.nodes[step.which % 2], step.choice)
        elif step.kind == "look":
            scheduling.run_once(self.database, "me", self.settings, at=after(self.clock_s))
            self._find_placed()
        elif step.kind == "wait":
            self.clock_s += (1, 30, 61, 301)[step.choice % 4]
            sweeping.sweep(self.database, self.settings, watching_since=after(-1000), at=after(self.clock_s))
        elif step.kind in ON_JOBS:
            if self.jobs:
                self._on_job(step, self.jobs[step.which % len(self.jobs)])
        elif self.attempts:
            self._on_attempt(step, self.attempts[-1 - step.which % len(self.attempts)])

    def _make_job(self, step: Step) -> None:
        """Every other one is queued, one in four has a time limit, one in four waits for one that there is."""
        state = State.VALIDATING if step.choice % 2 else State.QUEUED
        limit_s = 50 if step.choice in (2, 3) else None
        needs = self.jobs[step.which % len(self.jobs)] if self.jobs and step.choice in (4, 5) else None
        self.jobs.append(make_job(self.database, state, time_limit_s=limit_s))
        if needs is not None:
            with self.database.session() as session:
                dependencies.keep(session, self.jobs[-1], [needs])

    def _hold(self, node_id: str, choice: int) -> None:
        with self.database.session() as session:
            node = nodes.find(session, node_id)
            if choice < 3:
                nodes.hold(session, node, NodeState.DRAINING)
                for job_id, _ in nodes.runs_on(session, node_id) if choice else ():
                    request_leave(session, job_id, "drain", "for the test")
            elif choice == 3:
                nodes.hold(session, node, NodeState.CORDONED)
            else:
                nodes.release(session, node)

    def _find_placed(self) -> None:
        """What the scheduler placed by itself. A node that is held was not given anything."""
        with self.database.session() as session:
            for attempt in session.scalars(select(Attempt).where(Attempt.id.not_in(self.attempts))):
                attempt.placed_at = after(self.clock_s)
                self.attempts.append(attempt.id)
                assert session.get_one(Node, attempt.node_id).hold is None
                needs = select(JobDependency.needs_id).where(JobDependency.job_id == attempt.job_id)
                assert set(session.scalars(select(Job.state).where(Job.id.in_(needs)))) <= {State.SUCCEEDED}
                not_before = session.get_one(Job, attempt.job_id).not_before
                assert not_before is None or not_before <= after(self.clock_s)

    def _on_job(self, step: Step, job_id: str) -> None:
        with suppress(Conflict, Invalid), self.database.session() as session:
            if step.kind == "preflight":
                if preflights.claim(session, job_id, "me", 60, at=after(self.clock_s)):
                    preflights.finish(session, job_id, "me", PreflightReport(ok=True))
            elif step.kind == "place":
                indexes = ([0], [1], [0, 1], [1, 0])[step.choice % 4]
                attempt = attempts.place(session, job_id, self.nodes[step.choice // 4], indexes)
                if attempt is not None:
                    attempt.placed_at = after(self.clock_s)
                    self.attempts.append(attempt.id)
            elif step.kind == "pause":
                request_pause(session, job_id, "me")
            elif step.kind == "resume":
                request_resume(session, job_id, "me", at=after(self.clock_s))
            elif step.kind == "preempt":
                attempts.request_preempt(session, job_id, "for the test")
            elif step.kind == "change":
                change(session, job_id, JobPatch(time_limit_s=(10, 100, 1000)[step.choice % 3]), "me")
            else:
                request_cancel(session, job_id)

    def _on_attempt(self, step: Step, attempt_id: str) -> None:
        at = after(self.clock_s)
        with suppress(Lost), self.database.session() as session:
            if step.kind == "claim":
                attempts.claim_launch(session, attempt_id, at=at)
            elif step.kind == "beat":
                attempts.beat(session, attempt_id, at=at)
            elif step.kind == "records":
                shipped = session.scalars(select(Attempt.shipped_seq).where(Attempt.id == attempt_id)).one()
                more = [metrics_record(seq, seq) for seq in range(max(2, shipped), shipped + 3)]
                attempts.take_records(session, attempt_id, [started_record(), *more] if shipped == 0 else more, at=at)
            else:
                attempts.end(session, attempt_id, OUTCOMES[step.choice % len(OUTCOMES)], settings=self.settings, at=at)

    def check(self) -> None:
        with self.database.reading() as session:
            jobs = list(session.scalars(select(Job)))
            live = list(session.scalars(select(Attempt).where(Attempt.state != AttemptState.ENDED)))
            devices = list(session.scalars(select(Device)))
            per_job = session.execute(select(Event.job_id, func.count()).group_by(Event.job_id))
            counts = dict(per_job.all())
        held = sorted((device.node_id, device.index, device.attempt_id) for device in devices if device.attempt_id)
        assert held == sorted((each.node_id, index, each.id) for each in live for index in each.devices)
        by_job = {each.job_id: each for each in live}
        assert len(by_job) == len(live), "two live attempts of one job"
        for job in jobs:
            self._check_job(job, by_job.get(job.id))
            assert counts.get(job.id, 0) == job.last_event_n

    def _check_job(self, job: Job, live: Attempt | None) -> None:
        assert (State(job.state) in ON_DEVICES) == (live is not None), job.state
        assert live is None or live.number == job.attempt
        assert (State(job.state) in TERMINAL) == (job.finished_at is not None)
        assert job.n_failures == sum(job.faults.values())
        assert all(n <= 3 for n in job.faults.values())
        assert job.stop is None or State(job.state) in ON_DEVICES | TERMINAL, "a wish outlived what it was for"
        assert job.not_before is None or job.attempt > 0
        if job.id in self.finals:
            assert job.state == self.finals[job.id], "a terminal state was left"
        if State(job.state) in TERMINAL:
            self.finals[job.id] = job.state


@pytest.fixture(autouse=True)
def _no_nudges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "_send", lambda *_: None)
    monkeypatch.setattr(queue, "remind_preflight", lambda *_: None)


def live_through(database: Database, folder: Path, life: Sequence[Step]) -> None:
    with database.session() as session:
        for table in reversed(Base.metadata.sorted_tables):
            session.execute(delete(table))
    made = [make_node(database, 2, name=name, at=after(0)) for name in ("a", "b")]
    world = World(database, Settings(data_dir=folder, attempt_lease_s=60, lost_after_s=300), made)
    for step in life:
        world.take(step)
        world.check()


LONG_LIFE = [
    Step("job", 0, 0), Step("place", 0, 2), Step("claim", 0, 0), Step("records", 0, 0), Step("wait", 0, 2),
    Step("wait", 0, 3), Step("place", 0, 6), Step("beat", 1, 0), Step("claim", 0, 0), Step("records", 0, 0),
    Step("end", 0, 2), Step("place", 0, 2), Step("cancel", 0, 0), Step("end", 1, 0), Step("end", 0, 0),
]  # fmt: skip
TORN_LIFE = [
    Step("job", 0, 2), Step("job", 0, 4), Step("look", 0, 0), Step("claim", 0, 0), Step("records", 0, 0),
    Step("preempt", 0, 0), Step("pause", 0, 0), Step("end", 0, 1), Step("resume", 0, 0), Step("look", 0, 0),
    Step("claim", 0, 0), Step("records", 0, 0), Step("wait", 0, 2), Step("beat", 0, 0), Step("hold", 0, 1),
    Step("hold", 1, 1), Step("end", 0, 1), Step("look", 0, 0), Step("wait", 0, 0), Step("hold", 0, 7),
]  # fmt: skip
SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@example(LONG_LIFE)
@example(TORN_LIFE)
@given(st.lists(steps, min_size=5, max_size=40))
@settings(max_examples=60, deadline=None, suppress_health_check=SHARED)
def test_any_life_on_sqlite(sqlite_url: str, tmp_path: Path, life: list[Step]) -> None:
    with closing(Database(sqlite_url)) as database:
        live_through(database, tmp_path, life)


@pytest.mark.postgres
@example(LONG_LIFE)
@example(TORN_LIFE)
@given(st.lists(steps, min_size=5, max_size=40))
@settings(max_examples=15, deadline=None, suppress_health_check=SHARED)
def test_any_life_on_postgres(postgres_url: str, tmp_path: Path, life: list[Step]) -> None:
    with closing(Database(postgres_url)) as database:
        live_through(database, tmp_path, life)
