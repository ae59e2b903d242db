"""Cursors of events, metrics and logs: gap-free within a job, in commit order, also with many writers at once."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from api.core import events, logs
from api.core.db import Database
from api.core.errors import NotFound
from api.core.events import NewEvent
from api.core.logs import LogLine
from api.core.tables import Job
from tests.api.core.rows import T0, events_of, make_job, together

WRITERS, ROUNDS = 6, 10


def test_many_writers_leave_no_gap_and_no_double(database: Database) -> None:
    job_id = make_job(database)

    def write() -> None:
        for _ in range(ROUNDS):
            with database.session() as session:
                events.append(session, job_id, [NewEvent("a", "a"), NewEvent("b", "b")])
                logs.append(session, job_id, 1, [LogLine(T0, "rank0", 0, "line")] * 3)

    together([write] * WRITERS)
    assert [event.n for event in events_of(database, job_id)] == list(range(1, WRITERS * ROUNDS * 2 + 1))
    with database.reading() as session:
        lines = logs.read(session, job_id, 0, 10_000)
    assert [line["n"] for line in lines] == list(range(1, WRITERS * ROUNDS * 3 + 1))


def test_a_reader_that_follows_misses_nothing(database: Database) -> None:
    """A number that is visible has all smaller ones before it, so `after` never skips a late commit."""
    job_id = make_job(database)
    seen: list[int] = []

    def write() -> None:
        for _ in range(20):
            with database.session() as session:
                events.append(session, job_id, [NewEvent("a", "a")])

    def follow() -> None:
        while len(seen) < 60:
            with database.reading() as session:
                seen.extend(event.n for event in events.read(session, job_id, seen[-1] if seen else 0, 7))

    together([write, write, write, follow])
    assert seen == list(range(1, 61))


def test_a_rolled_back_writer_leaves_no_gap(database: Database) -> None:
    job_id = make_job(database)
    with database.session() as session:
        events.append(session, job_id, [NewEvent("lost", "lost")])
        session.rollback()
    with database.session() as session:
        events.append(session, job_id, [NewEvent("kept", "kept")])
    assert [(event.n, event.kind) for event in events_of(database, job_id)] == [(1, "kept")]


def test_an_unknown_job_is_not_found(database: Database) -> None:
    with database.session() as session, pytest.raises(NotFound):
        events.append(session, "job_none", [NewEvent("a", "a")])
    with database.session() as session, pytest.raises(NotFound):
        logs.append(session, "job_none", 1, [LogLine(T0, "rank0", 0, "line")])


def test_text_that_a_database_would_refuse_is_kept_visibly(database: Database) -> None:
    job_id = make_job(database)
    nasty = {"nul\x00": "\x00", "half": "\ud83d", "nan": float("nan"), "deep": [float("-inf")]}
    with database.session() as session:
        events.append(session, job_id, [NewEvent("note", "half \ud83d and \x00", data=nasty)])
        logs.append(session, job_id, 1, [LogLine(T0, "rank0", 0, "half \ud83d, \x00, end")])
    event = events_of(database, job_id)[0]
    assert event.message == "half \ufffd and \ufffd"
    assert event.data == {"nul\ufffd": "\ufffd", "half": "\ufffd", "nan": "NaN", "deep": ["-Infinity"]}
    with database.reading() as session:
        assert logs.read(session, job_id, 0, 1)[0]["text"] == "half \ufffd, \ufffd, end"
        assert session.scalar(select(Job.last_log_n).where(Job.id == job_id)) == 1
