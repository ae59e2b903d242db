"""Pause, resume, preemption and time limits: what is asked, and where it leads once the processes are gone."""

from __future__ import annotations

import pytest

from api.core import attempts
from api.core.attempts import Answer, Outcome
from api.core.db import Database
from api.core.errors import Conflict, NotFound
from api.core.moves import request_cancel
from api.core.states import AttemptState, State
from api.core.tables import Job
from api.core.wishes import request_leave, request_pause, request_resume
from tests.api.core.rows import (
    Run,
    after,
    attempt_of,
    events_of,
    holders,
    job_of,
    make_job,
    make_run,
    metrics_record,
    started_record,
    together,
)

STOPPED = Outcome(result="stopped", exit_code=75)


def pause(database: Database, job_id: str) -> Job:
    with database.session() as session:
        return request_pause(session, job_id, "ann")


def resume(database: Database, job_id: str, at_s: float = 0) -> Job:
    with database.session() as session:
        return request_resume(session, job_id, "ann", at=after(at_s))


def end(database: Database, run: Run, outcome: Outcome, at_s: float = 0) -> State:
    with database.session() as session:
        return attempts.end(session, run.attempt_id, outcome, at=after(at_s))


def beat(database: Database, run: Run, at_s: float = 0) -> Answer:
    with database.session() as session:
        return attempts.beat(session, run.attempt_id, at=after(at_s))


def kinds(database: Database, job_id: str) -> list[str]:
    return [event.kind for event in events_of(database, job_id)]


def limited_run(database: Database, limit_s: int = 100) -> Run:
    run = make_run(database, started=True)
    with database.session() as session:
        session.get_one(Job, run.job_id).time_limit_s = limit_s
    return run


def next_run(database: Database, run: Run, at_s: float) -> Run:
    with database.session() as session:
        attempt = attempts.place(session, run.job_id, run.node_id, [0, 1])
        assert attempt is not None
        attempts.take_records(session, attempt.id, [started_record(at=after(at_s))], at=after(at_s))
        return Run(run.job_id, run.node_id, attempt.id)


# Pause and resume ----------------------------------------------------------------------------------------------------


def test_a_queued_job_is_paused_at_once_and_resumed_into_its_place(database: Database) -> None:
    job_id = make_job(database)
    before = job_of(database, job_id).queued_at
    assert pause(database, job_id).state == State.PAUSED
    assert pause(database, job_id).state == State.PAUSED, "asking twice is fine"
    job = resume(database, job_id)
    assert (job.state, job.queued_at, job.stop) == (State.QUEUED, before, None)
    assert resume(database, job_id).state == State.QUEUED, "asking twice is fine"
    assert [event.message for event in events_of(database, job_id)] == ["Paused (by ann)", "Queued again (by ann)"]
    assert [event.data["by"] for event in events_of(database, job_id)] == ["ann", "ann"]


@pytest.mark.parametrize("started", [True, False])
def test_a_run_is_told_to_pause_and_is_paused_once_it_is_gone(database: Database, started: bool) -> None:
    run = make_run(database, started=started)
    for _ in range(2):
        job = pause(database, run.job_id)
        assert (job.state, job.stop) == (State.PAUSING, "pause")
    assert beat(database, run) == Answer("stop", "pause")
    assert None not in holders(database, run.node_id), "devices are held while processes may live"
    assert end(database, run, STOPPED) == State.PAUSED
    job = job_of(database, run.job_id)
    assert (job.stop, job.n_failures, job.finished_at) == (None, 0, None)
    assert holders(database, run.node_id) == [None, None]
    assert resume(database, run.job_id).state == State.QUEUED
    assert kinds(database, run.job_id).count("pause_requested") == 1


def test_a_placement_nobody_launched_is_paused_at_once(database: Database) -> None:
    run = make_run(database, launched=False)
    assert pause(database, run.job_id).state == State.PAUSED
    assert holders(database, run.node_id) == [None, None]
    assert attempt_of(database, run.attempt_id).state == AttemptState.ENDED


def test_a_run_that_finishes_while_pausing_has_succeeded(database: Database) -> None:
    run = make_run(database, started=True)
    pause(database, run.job_id)
    assert end(database, run, Outcome(result="succeeded", exit_code=0)) == State.SUCCEEDED


def test_a_pausing_or_paused_job_can_be_cancelled(database: Database) -> None:
    run = make_run(database, started=True)
    pause(database, run.job_id)
    with database.session() as session:
        assert request_cancel(session, run.job_id, "bob").state == State.CANCELLING
    assert beat(database, run) == Answer("stop", "cancel")
    assert end(database, run, STOPPED) == State.CANCELLED
    job_id = make_job(database, State.PAUSED)
    with database.session() as session:
        assert request_cancel(session, job_id, "bob").state == State.CANCELLED
    assert events_of(database, job_id)[-1].message == "Cancelled (by bob)"


@pytest.mark.parametrize("state", [State.VALIDATING, State.CANCELLING, State.SUCCEEDED, State.FAILED, State.CANCELLED])
def test_what_cannot_be_paused_says_so(database: Database, state: State) -> None:
    job_id = make_job(database, state)
    with database.session() as session, pytest.raises(Conflict, match=state) as caught:
        request_pause(session, job_id)
    assert caught.value.code == "not_pausable"
    assert job_of(database, job_id).state == state


@pytest.mark.parametrize("state", [State.PAUSING, State.CANCELLING, State.SUCCEEDED, State.FAILED, State.CANCELLED])
def test_what_cannot_be_resumed_says_so(database: Database, state: State) -> None:
    job_id = make_job(database, state)
    with database.session() as session, pytest.raises(Conflict, match=state) as caught:
        request_resume(session, job_id)
    assert caught.value.code == "not_paused"


def test_pause_and_resume_of_nothing_are_not_found(database: Database) -> None:
    for ask in (request_pause, request_resume):
        with database.session() as session, pytest.raises(NotFound):
            ask(session, "job_none")


def test_pause_racing_the_end_leaves_one_truth(database: Database) -> None:
    for _ in range(5):
        run = make_run(database, started=True)

        def ask(run: Run = run) -> str:
            try:
                return pause(database, run.job_id).state
            except Conflict:
                return "refused"

        together([ask, lambda run=run: end(database, run, STOPPED)])  # type: ignore[misc]  # a lambda with a default
        assert job_of(database, run.job_id).state == State.PAUSED
        assert holders(database, run.node_id) == [None, None]


# Leaving for others --------------------------------------------------------------------------------------------------


def test_a_preempted_run_is_queued_again_for_free(database: Database) -> None:
    run = make_run(database, started=True)
    with database.session() as session:
        assert attempts.request_preempt(session, run.job_id, "job_b needs 2 devices")
    with database.session() as session:
        assert not attempts.request_preempt(session, run.job_id, "again"), "it is on its way already"
    assert beat(database, run) == Answer("stop", "preempt")
    assert job_of(database, run.job_id).state == State.RUNNING
    assert end(database, run, STOPPED) == State.QUEUED
    job = job_of(database, run.job_id)
    assert (job.n_failures, job.faults, job.not_before, job.stop) == (0, {}, None, None)
    asked = next(event for event in events_of(database, run.job_id) if event.kind == "preempt_requested")
    assert "job_b needs 2 devices" in asked.message


def test_a_preempted_placement_is_taken_back_at_once(database: Database) -> None:
    run = make_run(database, launched=False)
    with database.session() as session:
        assert request_leave(session, run.job_id, "drain", "node1 is drained", "ann")
    assert job_of(database, run.job_id).state == State.QUEUED
    assert holders(database, run.node_id) == [None, None]


@pytest.mark.parametrize("state", sorted(set(State) - {State.STARTING, State.RUNNING}))
def test_nothing_is_preempted_that_holds_no_devices_or_leaves_them(database: Database, state: State) -> None:
    job_id = make_job(database, state)
    with database.session() as session:
        assert not attempts.request_preempt(session, job_id, "no reason")
    job = job_of(database, job_id)
    assert (job.state, job.stop) == (state, None)


def test_a_preempted_run_can_be_paused_or_cancelled_meanwhile(database: Database) -> None:
    run = make_run(database, started=True)
    with database.session() as session:
        attempts.request_preempt(session, run.job_id, "others")
    assert pause(database, run.job_id).state == State.PAUSING
    assert end(database, run, STOPPED) == State.PAUSED


# Time limits ---------------------------------------------------------------------------------------------------------


def test_a_run_at_its_limit_saves_a_checkpoint_and_fails_by_timeout(database: Database) -> None:
    run = limited_run(database)
    assert beat(database, run, 99) == Answer("go")
    assert beat(database, run, 100) == Answer("stop", "timeout")
    assert beat(database, run, 101) == Answer("stop", "timeout")
    assert job_of(database, run.job_id).state == State.RUNNING
    assert end(database, run, STOPPED, 105) == State.FAILED
    job = job_of(database, run.job_id)
    assert job.cause is not None
    assert (job.cause["code"], job.cause["param"]) == ("timeout", "time_limit_s")
    assert kinds(database, run.job_id).count("time_limit_reached") == 1


def test_a_run_that_finishes_at_its_limit_has_succeeded(database: Database) -> None:
    run = limited_run(database)
    beat(database, run, 100)
    assert end(database, run, Outcome(result="succeeded", exit_code=0), 101) == State.SUCCEEDED


def test_attempts_are_counted_together_and_waiting_is_not(database: Database) -> None:
    run = limited_run(database)
    assert end(database, run, STOPPED, 60) == State.QUEUED
    run = next_run(database, run, 1000)
    assert beat(database, run, 1039) == Answer("go")
    assert beat(database, run, 1040) == Answer("stop", "timeout")


def test_a_lost_run_counts_until_it_was_last_heard_of(database: Database) -> None:
    run = limited_run(database)
    beat(database, run, 50)
    assert end(database, run, Outcome(result="lost"), 400) == State.QUEUED
    run = next_run(database, run, 1000)
    assert beat(database, run, 1049) == Answer("go")
    assert beat(database, run, 1050) == Answer("stop", "timeout")


@pytest.mark.parametrize("outcome", [STOPPED, Outcome(result="died", signal=9), Outcome(result="launch_failed")])
def test_no_further_attempt_begins_once_the_time_is_used_up(database: Database, outcome: Outcome) -> None:
    run = limited_run(database)
    assert end(database, run, outcome, 100) == State.FAILED
    job = job_of(database, run.job_id)
    assert job.cause is not None
    assert job.cause["code"] == "timeout"


def test_a_paused_job_whose_time_is_used_up_needs_a_longer_limit(database: Database) -> None:
    run = limited_run(database)
    pause(database, run.job_id)
    assert beat(database, run, 200) == Answer("stop", "pause")
    assert end(database, run, STOPPED, 200) == State.PAUSED
    with pytest.raises(Conflict) as caught:
        resume(database, run.job_id, 200)
    assert (caught.value.code, caught.value.param) == ("time_limit_used_up", "time_limit_s")
    with database.session() as session:
        session.get_one(Job, run.job_id).time_limit_s = 300
    assert resume(database, run.job_id, 200).state == State.QUEUED


def test_steps_go_on_being_taken_while_a_run_leaves(database: Database) -> None:
    run = limited_run(database)
    beat(database, run, 100)
    with database.session() as session:
        attempts.take_records(session, run.attempt_id, [metrics_record(2, 1)], at=after(101))
    assert job_of(database, run.job_id).step == 1
