"""The one writer of jobs.state: legal moves only, guarded by attempt, with the event in the same transaction."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from api.core.db import Database
from api.core.errors import Conflict, NotFound
from api.core.moves import NewEvent, move, request_cancel
from api.core.states import MAY_BECOME, TERMINAL, State
from tests.api.core.rows import events_of, holders, job_of, make_job, make_run

REPOSITORY = Path(__file__).resolve().parents[3]
EVENT = NewEvent("moved", "Moved")


def test_only_legal_moves_are_made(database: Database) -> None:
    for source in State:
        for target in State:
            job_id = make_job(database, source)
            with database.session() as session:
                moved = move(session, job_id, target, EVENT)
            assert moved == (target in MAY_BECOME[source]), (source, target)
            assert job_of(database, job_id).state == (target if moved else source)
            assert len(events_of(database, job_id)) == moved


def test_another_attempts_move_changes_nothing(database: Database) -> None:
    job_id = make_job(database, State.RUNNING, attempt=2)
    with database.session() as session:
        assert not move(session, job_id, State.SUCCEEDED, EVENT, attempt=1)
        assert move(session, job_id, State.SUCCEEDED, EVENT, attempt=2)


def test_only_from_narrows_and_never_widens(database: Database) -> None:
    job_id = make_job(database, State.SUCCEEDED)
    with database.session() as session:
        assert not move(session, job_id, State.RUNNING, EVENT, only_from=[State.SUCCEEDED])


def test_a_rolled_back_move_leaves_no_event(database: Database) -> None:
    job_id = make_job(database)
    with database.session() as session:
        assert move(session, job_id, State.CANCELLED, EVENT)
        session.rollback()
    assert job_of(database, job_id).state == State.QUEUED
    assert events_of(database, job_id) == []


def test_a_job_the_session_holds_shows_the_new_state(database: Database) -> None:
    from_state = State.QUEUED
    job_id = make_job(database, from_state)
    with database.session() as session:
        job = request_cancel(session, job_id)
        assert job.state == State.CANCELLED
        assert job.finished_at is not None


def test_a_requeued_job_keeps_its_place_in_line(database: Database) -> None:
    job_id = make_job(database, State.RUNNING, attempt=1)
    before = job_of(database, job_id).queued_at
    with database.session() as session:
        assert move(session, job_id, State.QUEUED, EVENT)
    assert job_of(database, job_id).queued_at == before


@pytest.mark.parametrize("state", [State.VALIDATING, State.QUEUED, State.PAUSED])
def test_cancel_without_processes_is_at_once(database: Database, state: State) -> None:
    job_id = make_job(database, state)
    with database.session() as session:
        assert request_cancel(session, job_id).state == State.CANCELLED


@pytest.mark.parametrize("state", [State.STARTING, State.RUNNING, State.PAUSING])
def test_cancel_of_a_run_waits_for_its_end_and_may_be_repeated(database: Database, state: State) -> None:
    job_id = make_job(database, state, attempt=1)
    for _ in range(2):
        with database.session() as session:
            job = request_cancel(session, job_id)
            assert (job.state, job.stop) == (State.CANCELLING, "cancel")
    assert [event.kind for event in events_of(database, job_id)] == ["cancel_requested"]


def test_cancel_before_the_launch_frees_the_devices_at_once(database: Database) -> None:
    run = make_run(database, launched=False)
    with database.session() as session:
        assert request_cancel(session, run.job_id).state == State.CANCELLED
    assert holders(database, run.node_id) == [None, None]


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_cancel_of_a_finished_job_is_a_conflict(database: Database, state: State) -> None:
    job_id = make_job(database, state)
    with database.session() as session, pytest.raises(Conflict) as caught:
        request_cancel(session, job_id)
    assert caught.value.code == "already_finished"


def test_cancel_of_an_unknown_job_is_not_found(database: Database) -> None:
    with database.session() as session, pytest.raises(NotFound):
        request_cancel(session, "job_none")


def test_nothing_else_in_the_service_writes_the_state_of_a_job() -> None:
    writes = re.compile(r"\bjob\.state = |update\(Job\)[^;]{0,300}?\.values\([^)]*\bstate=", re.DOTALL)
    sources = [file for top in ("api", "worker") for file in (REPOSITORY / top).rglob("*.py")]
    assert [file.name for file in sources if writes.search(file.read_text())] == ["moves.py"]
