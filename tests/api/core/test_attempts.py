"""Attempts: placed whole or not at all, launched once, heard until they end, then fenced off."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from api.core import attempts, sweeping
from api.core.attempts import Answer, Lost, Outcome
from api.core.db import Database
from api.core.moves import request_cancel
from api.core.settings import Settings
from api.core.states import AttemptState, State
from tests.api.core.rows import (
    after,
    attempt_of,
    events_of,
    holders,
    job_of,
    make_job,
    make_node,
    make_run,
    started_record,
    together,
)


def test_a_placement_takes_the_devices_and_counts_the_attempt(database: Database) -> None:
    node_id, job_id = make_node(database, 4), make_job(database, n_devices=2)
    with database.session() as session:
        attempt = attempts.place(session, job_id, node_id, [3, 1])
        assert attempt is not None
        assert (attempt.number, attempt.devices, attempt.state) == (1, [3, 1], AttemptState.PLACED)
    assert holders(database, node_id) == [None, attempt.id, None, attempt.id]
    assert (job_of(database, job_id).state, job_of(database, job_id).attempt) == (State.STARTING, 1)
    assert [event.message for event in events_of(database, job_id)] == ["Placed on node1, devices 3, 1"]


def test_a_placement_on_a_taken_device_changes_nothing(database: Database) -> None:
    node_id, first, second = make_node(database, 3), make_job(database), make_job(database)
    with database.session() as session:
        assert attempts.place(session, first, node_id, [1]) is not None
    before = holders(database, node_id)
    with database.session() as session:
        assert attempts.place(session, second, node_id, [0, 1, 2]) is None
    assert holders(database, node_id) == before
    assert (job_of(database, second).state, job_of(database, second).attempt) == (State.QUEUED, 0)
    assert events_of(database, second) == []


def test_a_device_that_is_gone_is_not_placed_on(database: Database) -> None:
    node_id, job_id = make_node(database, 2), make_job(database)
    make_node(database, 1)  # the same node comes back with one device less
    with database.session() as session:
        assert attempts.place(session, job_id, node_id, [0, 1]) is None


@pytest.mark.parametrize("indexes", [[], [0, 0]])
def test_a_placement_names_different_devices(database: Database, indexes: list[int]) -> None:
    node_id, job_id = make_node(database), make_job(database)
    with database.session() as session, pytest.raises(ValueError, match="different device indexes"):
        attempts.place(session, job_id, node_id, indexes)


def test_one_of_many_claims_launches(database: Database) -> None:
    run = make_run(database, launched=False)

    def claim() -> bool:
        with database.session() as session:
            return attempts.claim_launch(session, run.attempt_id)

    assert sorted(together([claim] * 8)) == [False] * 7 + [True]


def test_devices_go_to_one_of_two_jobs(database: Database) -> None:
    node_id = make_node(database, 2)
    jobs = [make_job(database) for _ in range(6)]

    def place(job_id: str) -> bool:
        with database.session() as session:
            return attempts.place(session, job_id, node_id, [0, 1]) is not None

    assert sum(together([partial(place, job_id) for job_id in jobs])) == 1
    assert len(set(holders(database, node_id))) == 1
    assert sorted(job_of(database, job_id).state for job_id in jobs) == ["queued"] * 5 + ["starting"]


def test_one_job_is_placed_once_by_two_schedulers(database: Database) -> None:
    nodes = [make_node(database, 1, name=f"n{number}") for number in range(6)]
    job_id = make_job(database)

    def place(node_id: str) -> bool:
        with database.session() as session:
            return attempts.place(session, job_id, node_id, [0]) is not None

    assert sum(together([partial(place, node_id) for node_id in nodes])) == 1
    assert sum(holders(database, node_id) != [None] for node_id in nodes) == 1
    assert job_of(database, job_id).attempt == 1


def test_placed_on_lists_what_is_to_be_launched(database: Database) -> None:
    run = make_run(database, launched=False)
    with database.session() as session:
        assert [attempt.id for attempt in attempts.placed_on(session, run.node_id)] == [run.attempt_id]
        assert attempts.claim_launch(session, run.attempt_id)
        assert attempts.placed_on(session, run.node_id) == []


def test_a_job_that_is_being_cancelled_is_not_launched(database: Database) -> None:
    run = make_run(database, launched=False)
    with database.session() as session:
        request_cancel(session, run.job_id)
        assert attempts.placed_on(session, run.node_id) == []
        assert not attempts.claim_launch(session, run.attempt_id)


def test_processes_are_remembered_piece_by_piece(database: Database) -> None:
    run = make_run(database)
    with database.session() as session:
        attempts.record_process(session, run.attempt_id, supervisor={"pid": 7, "started": 1.5}, run_folder="/runs/1")
        attempts.record_process(session, run.attempt_id, launcher={"pid": 8, "started": 2.5})
    attempt = attempt_of(database, run.attempt_id)
    assert (attempt.supervisor, attempt.launcher) == ({"pid": 7, "started": 1.5}, {"pid": 8, "started": 2.5})
    assert attempt.run_folder == "/runs/1"


def test_a_beat_is_answered_go_then_stop_then_lost(database: Database) -> None:
    run = make_run(database, started=True)
    with database.session() as session:
        assert attempts.beat(session, run.attempt_id, at=after(9)) == Answer("go")
    assert attempt_of(database, run.attempt_id).beat_at == after(9)
    with database.session() as session:
        request_cancel(session, run.job_id)
        assert attempts.beat(session, run.attempt_id) == Answer("stop", "cancel")
        attempts.end(session, run.attempt_id, Outcome(result="stopped", exit_code=75))
        assert attempts.beat(session, run.attempt_id) == Answer("lost")


def test_an_ended_attempt_writes_nothing_more(database: Database) -> None:
    run = make_run(database, started=True)
    with database.session() as session:
        attempts.end(session, run.attempt_id, Outcome(result="lost"))
    before = job_of(database, run.job_id)
    for write in (
        lambda session: attempts.take_records(session, run.attempt_id, [started_record(seq=2)]),
        lambda session: attempts.take_logs(session, run.attempt_id, [], {"rank0.log": 3}),
        lambda session: attempts.record_process(session, run.attempt_id, run_folder="/x"),
        lambda session: attempts.remove_checkpoint(session, run.attempt_id, 1),
        lambda session: attempts.add_artifact(session, run.attempt_id, "a", "b", 1, "c"),
    ):
        with database.session() as session, pytest.raises(Lost):
            write(session)
    later = job_of(database, run.job_id)
    assert (later.last_event_n, later.last_log_n, later.step) == (before.last_event_n, before.last_log_n, before.step)


def test_the_next_attempt_does_not_revive_the_one_before(database: Database) -> None:
    run = make_run(database, started=True)
    with database.session() as session:
        assert attempts.end(session, run.attempt_id, Outcome(result="lost")) == State.QUEUED
        second = attempts.place(session, run.job_id, run.node_id, [0, 1])
        assert second is not None
        assert second.number == 2
        assert attempts.beat(session, run.attempt_id) == Answer("lost")
        with pytest.raises(Lost):
            attempts.end(session, run.attempt_id, Outcome(result="succeeded", exit_code=0))
    assert holders(database, run.node_id) == [second.id, second.id]
    assert job_of(database, run.job_id).state == State.STARTING


def test_cancel_racing_a_placement_ends_cancelled_with_the_devices_free(database: Database, tmp_path: Path) -> None:
    node_id = make_node(database, 1)
    settings = Settings(data_dir=tmp_path)
    for _ in range(8):
        job_id = make_job(database)

        def place(job_id: str = job_id) -> None:
            with database.session() as session:
                attempts.place(session, job_id, node_id, [0])

        def cancel(job_id: str = job_id) -> None:
            with database.session() as session:
                request_cancel(session, job_id)

        together([place, cancel])
        assert job_of(database, job_id).state in (State.CANCELLED, State.CANCELLING)
        sweeping.sweep(database, settings, watching_since=after(0), at=after(1))
        assert job_of(database, job_id).state == State.CANCELLED
        assert holders(database, node_id) == [None]
