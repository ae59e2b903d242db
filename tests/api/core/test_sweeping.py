"""The sweep: silence is called unreachable first and lost later, and only when somebody was there to hear."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.core import attempts, nodes, scheduling, sweeping
from api.core.attempts import Answer
from api.core.db import Database
from api.core.moves import request_cancel
from api.core.settings import Settings
from api.core.states import AttemptState, Health, NodeState, State
from api.core.tables import Attempt, Job, Node
from tests.api.core.rows import (
    T0,
    after,
    attempt_of,
    events_of,
    holders,
    job_of,
    make_job,
    make_run,
    metrics_record,
    together,
)

LEASE_S, LOST_S = 60.0, 300.0


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, attempt_lease_s=LEASE_S, lost_after_s=LOST_S, max_attempts_node=3)


def sweep(database: Database, settings: Settings, at_s: float, watching_since_s: float = -1000) -> list[str]:
    return sweeping.sweep(database, settings, watching_since=after(watching_since_s), at=after(at_s))


def test_a_silent_run_is_unreachable_and_goes_on(database: Database, settings: Settings) -> None:
    run = make_run(database, started=True)
    sweep(database, settings, LEASE_S - 1)
    assert job_of(database, run.job_id).health == Health.OK
    for _ in range(2):
        sweep(database, settings, LEASE_S + 1)
    job = job_of(database, run.job_id)
    assert (job.state, job.health) == (State.RUNNING, Health.UNREACHABLE)
    assert [event.kind for event in events_of(database, run.job_id)] == ["placed", "started", "unreachable"]
    with database.session() as session:
        assert attempts.beat(session, run.attempt_id, at=after(LEASE_S + 2)) == Answer("go")
    assert job_of(database, run.job_id).health == Health.OK


def test_a_lost_run_is_fenced_and_its_job_queued_again(database: Database, settings: Settings) -> None:
    run = make_run(database, started=True)
    sweep(database, settings, LOST_S + 1)
    job, attempt = job_of(database, run.job_id), attempt_of(database, run.attempt_id)
    assert (job.state, job.health, job.n_failures) == (State.QUEUED, Health.OK, 1)
    assert attempt.state == AttemptState.ENDED
    assert attempt.outcome is not None
    assert attempt.outcome["result"] == "lost"
    assert holders(database, run.node_id) == [None, None]
    with database.session() as session:
        assert attempts.beat(session, run.attempt_id) == Answer("lost")
        with pytest.raises(attempts.Lost):
            attempts.take_records(session, run.attempt_id, [metrics_record(2, 1)])
    sweep(database, settings, LOST_S + 2)
    assert job_of(database, run.job_id).n_failures == 1


def test_a_job_that_is_lost_too_often_fails(database: Database, settings: Settings) -> None:
    run = make_run(database, started=True)
    with database.session() as session:
        session.get_one(Job, run.job_id).faults = {"node": 2}
    sweep(database, settings, LOST_S + 1)
    job = job_of(database, run.job_id)
    assert job.state == State.FAILED
    assert job.cause is not None
    assert job.cause["code"] == "node_lost"
    assert "nothing was heard from the run" in job.cause["message"]
    assert job.cause["host"].startswith("n_")


def test_silence_does_not_count_while_nobody_could_hear(database: Database, settings: Settings) -> None:
    """The database was away for an hour and is back: every run looks silent, none is lost."""
    run = make_run(database, started=True)
    sweep(database, settings, 3600, watching_since_s=3600)
    sweep(database, settings, 3600 + LEASE_S - 1, watching_since_s=3600)
    job = job_of(database, run.job_id)
    assert (job.state, job.health) == (State.RUNNING, Health.OK)
    sweep(database, settings, 3600 + LOST_S + 1, watching_since_s=3600)
    assert job_of(database, run.job_id).state == State.QUEUED


def test_the_lease_remembers_since_when_somebody_listens(database: Database, settings: Settings) -> None:
    run = make_run(database, started=True)
    scheduling.run_once(database, "first", settings, at=T0)
    scheduling.run_once(database, "second", settings, at=after(3600))  # nobody looked for an hour
    assert job_of(database, run.job_id).state == State.RUNNING
    for moment in range(0, int(LOST_S) + 10, 5):
        scheduling.run_once(database, f"s{moment % 2}", settings, at=after(3600 + moment))
    assert job_of(database, run.job_id).state != State.RUNNING


def test_a_placement_that_nobody_launched_is_taken_back(database: Database, settings: Settings) -> None:
    run = make_run(database, launched=False)
    sweep(database, settings, LEASE_S - 1)
    assert job_of(database, run.job_id).state == State.STARTING
    sweep(database, settings, LEASE_S + 1)
    assert job_of(database, run.job_id).state == State.QUEUED
    assert holders(database, run.node_id) == [None, None]
    assert "did not launch the run" in events_of(database, run.job_id)[-1].message
    with database.session() as session:
        assert not attempts.claim_launch(session, run.attempt_id)


def test_launch_racing_the_sweep_has_one_winner(database: Database, settings: Settings) -> None:
    for _ in range(5):
        run = make_run(database, launched=False)

        def claim(attempt_id: str = run.attempt_id) -> bool:
            with database.session() as session:
                return attempts.claim_launch(session, attempt_id, at=after(LEASE_S + 1))

        def look() -> bool:
            sweep(database, settings, LEASE_S + 1)
            return False

        launched = any(together([claim, look]))
        state = attempt_of(database, run.attempt_id).state
        assert state == (AttemptState.LAUNCHED if launched else AttemptState.ENDED)
        assert (holders(database, run.node_id) == [None, None]) == (not launched)


def test_a_beat_racing_the_sweep_is_go_or_lost(database: Database, settings: Settings) -> None:
    for _ in range(5):
        run = make_run(database, started=True)

        def beat(attempt_id: str = run.attempt_id) -> str:
            with database.session() as session:
                return attempts.beat(session, attempt_id, at=after(LOST_S + 1)).kind

        def look() -> str:
            sweep(database, settings, LOST_S + 1)
            return ""

        answer = max(together([beat, look]))
        assert job_of(database, run.job_id).state == (State.RUNNING if answer == "go" else State.QUEUED)


def test_an_unlaunched_attempt_of_a_cancelled_job_is_ended_at_once(database: Database, settings: Settings) -> None:
    run = make_run(database, launched=False)
    with database.session() as session:
        session.get_one(Job, run.job_id).state = State.CANCELLING.value
    sweep(database, settings, 1)
    assert job_of(database, run.job_id).state == State.CANCELLED
    assert holders(database, run.node_id) == [None, None]


def test_a_lost_run_that_was_being_cancelled_is_cancelled(database: Database, settings: Settings) -> None:
    run = make_run(database, started=True)
    with database.session() as session:
        request_cancel(session, run.job_id)
    sweep(database, settings, LOST_S + 1)
    assert job_of(database, run.job_id).state == State.CANCELLED
    assert "node was not heard of" in events_of(database, run.job_id)[-1].message


def test_a_silent_node_is_unreachable_until_it_beats(database: Database, settings: Settings) -> None:
    run = make_run(database, started=True)
    sweep(database, settings, LEASE_S + 1)
    with database.reading() as session:
        assert session.get_one(Node, run.node_id).state == NodeState.UNREACHABLE
    with database.session() as session:
        nodes.beat(session, run.node_id, {"load": 1.5}, at=after(LEASE_S + 2))
    sweep(database, settings, LEASE_S + 3)
    with database.reading() as session:
        node = session.get_one(Node, run.node_id)
        assert (node.state, node.facts) == (NodeState.READY, {"load": 1.5})


def test_jobs_that_nobody_checks_are_named(database: Database, settings: Settings) -> None:
    waits = make_job(database, State.VALIDATING)
    over = make_job(database, State.VALIDATING, preflight_owner="gone", preflight_until=after(-1), n_preflights=1)
    make_job(database, State.VALIDATING, preflight_owner="busy", preflight_until=after(99), n_preflights=1)
    make_job(database, State.CANCELLED)
    assert sorted(sweep(database, settings, 0)) == sorted([waits, over])


def test_a_check_that_never_ends_fails_the_job(database: Database, settings: Settings) -> None:
    job_id = make_job(database, State.VALIDATING, preflight_owner="gone", preflight_until=after(-1), n_preflights=3)
    assert sweep(database, settings, 0) == []
    job = job_of(database, job_id)
    assert job.state == State.FAILED
    assert job.cause is not None
    assert "begun 3 times" in job.cause["message"]


def test_one_attempt_is_not_judged_by_the_age_of_another(database: Database, settings: Settings) -> None:
    silent, heard = make_run(database, started=True), make_run(database, started=True)
    with database.session() as session:
        session.get_one(Attempt, heard.attempt_id).beat_at = after(LOST_S)
    sweep(database, settings, LOST_S + 1)
    assert job_of(database, silent.job_id).state == State.QUEUED
    assert job_of(database, heard.job_id).state == State.RUNNING
