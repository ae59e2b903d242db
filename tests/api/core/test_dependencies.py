"""Jobs that wait for others, and jobs that back off: when they may be placed, and what ends the wait."""

from __future__ import annotations

from pathlib import Path

from api.core import dependencies, queue_rows, scheduling, waiting
from api.core.db import Database
from api.core.moves import NewEvent, move
from api.core.settings import Settings
from api.core.states import State
from tests.api.core.rows import after, events_of, job_of, make_job, make_node


def make_waiting(database: Database, *needs: str, state: State = State.QUEUED) -> str:
    job_id = make_job(database, state)
    with database.session() as session:
        dependencies.keep(session, job_id, needs)
    return job_id


def to(database: Database, job_id: str, *states: State) -> None:
    with database.session() as session:
        for state in states:
            assert move(session, job_id, state, NewEvent(state.value, state.value)), state


def may_start(database: Database, at_s: float = 0) -> set[str]:
    with database.reading() as session:
        return {job.job_id for job in queue_rows.waiting_jobs(session, after(at_s))}


def reasons(database: Database, job_id: str, at_s: float = 0) -> str | None:
    with database.reading() as session:
        return waiting.reasons(session, [job_id], after(at_s)).get(job_id)


def test_a_job_starts_once_all_it_depends_on_have_succeeded(database: Database) -> None:
    first, second = make_job(database, State.RUNNING), make_job(database, State.RUNNING)
    job_id = make_waiting(database, first, second)
    free = make_waiting(database)
    assert may_start(database) == {free}
    assert reasons(database, job_id) == (
        f"waits for {first} (a job), which is running, {second} (a job), which is running"
    )
    to(database, first, State.SUCCEEDED)
    assert may_start(database) == {free}
    to(database, second, State.SUCCEEDED)
    assert may_start(database) == {free, job_id}
    assert reasons(database, job_id) is None


def test_whole_chains_are_cancelled_with_the_reason(database: Database) -> None:
    first = make_job(database, State.RUNNING)
    second = make_waiting(database, first)
    third = make_waiting(database, second, state=State.VALIDATING)
    fourth = make_waiting(database, third, state=State.PAUSED)
    other = make_waiting(database, make_job(database, State.RUNNING))
    assert dependencies.cancel_hopeless(database) == 0
    to(database, first, State.FAILED)
    assert dependencies.cancel_hopeless(database) == 3
    assert [job_of(database, job).state for job in (second, third, fourth)] == [State.CANCELLED] * 3
    assert job_of(database, other).state == State.QUEUED
    assert events_of(database, second)[-1].message == (
        f"Cancelled: it waits for {first}, which is failed and will never succeed"
    )
    assert events_of(database, third)[-1].data == {"needs": second, "state": "cancelled"}
    assert dependencies.cancel_hopeless(database) == 0


def test_a_job_that_runs_is_not_touched_by_what_it_once_waited_for(database: Database) -> None:
    # It can run only because all had succeeded; a row that says otherwise is no reason to end it.
    first = make_job(database, State.CANCELLED)
    job_id = make_waiting(database, first, state=State.RUNNING)
    assert dependencies.cancel_hopeless(database) == 0
    assert job_of(database, job_id).state == State.RUNNING


def test_a_job_that_backs_off_is_placed_when_its_time_has_come(database: Database, tmp_path: Path) -> None:
    job_id = make_job(database, not_before=after(30))
    node_id = make_node(database, 1, at=after(0))
    settings = Settings(data_dir=tmp_path)
    assert reasons(database, job_id, 10) == "its last attempt failed; the next may start in 20 s"
    assert scheduling.run_once(database, "me", settings, at=after(29)) == 0
    assert scheduling.run_once(database, "me", settings, at=after(30)) == 1
    assert job_of(database, job_id).state == State.STARTING
    assert node_id


def test_one_look_cancels_what_can_never_start(database: Database, tmp_path: Path) -> None:
    job_id = make_waiting(database, make_job(database, State.CANCELLED))
    make_node(database, 1, at=after(0))
    assert scheduling.run_once(database, "me", Settings(data_dir=tmp_path), at=after(1)) == 0
    assert job_of(database, job_id).state == State.CANCELLED
