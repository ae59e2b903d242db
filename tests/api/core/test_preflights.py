"""Preflights: one owner at a time, a report that counts once, and a cancel that is final."""

from __future__ import annotations

from functools import partial

from api.core import preflights
from api.core.db import Database
from api.core.moves import request_cancel
from api.core.states import State
from tests.api.core.rows import after, events_of, job_of, make_job, together
from trainer_core.contract import Cause, CauseCode, PreflightReport

GOOD = PreflightReport(ok=True, n_train_rows=1500, planned_steps=120)
BAD = PreflightReport(ok=False, cause=Cause(code=CauseCode.DATA_INVALID, message="line 7 has no reply", line=7))


def claim(database: Database, job_id: str | None, owner: str = "me", at_s: float = 0) -> str | None:
    with database.session() as session:
        job = preflights.claim(session, job_id, owner, lease_s=60, at=after(at_s))
        return None if job is None else job.id


def finish(database: Database, job_id: str, report: PreflightReport, owner: str = "me") -> bool:
    with database.session() as session:
        return preflights.finish(session, job_id, owner, report)


def test_a_good_report_queues_the_job(database: Database) -> None:
    job_id = make_job(database, State.VALIDATING)
    assert claim(database, job_id) == job_id
    assert finish(database, job_id, GOOD)
    job = job_of(database, job_id)
    assert (job.state, job.planned_steps, job.queued_at is not None) == (State.QUEUED, 120, True)
    assert job.preflight is not None
    assert job.preflight["n_train_rows"] == 1500
    assert events_of(database, job_id)[0].message == "Checked: 120 steps over 1,500 rows are planned"


def test_a_bad_report_fails_the_job_with_its_cause(database: Database) -> None:
    job_id = make_job(database, State.VALIDATING)
    claim(database, job_id)
    assert finish(database, job_id, BAD)
    job = job_of(database, job_id)
    assert job.state == State.FAILED
    assert job.cause is not None
    assert (job.cause["code"], job.cause["line"]) == ("data_invalid", 7)


def test_one_owner_has_it_until_the_lease_is_over(database: Database) -> None:
    job_id = make_job(database, State.VALIDATING)
    assert claim(database, job_id, "first") == job_id
    assert claim(database, job_id, "second", at_s=59) is None
    assert claim(database, job_id, "second", at_s=61) == job_id
    assert job_of(database, job_id).n_preflights == 2
    assert not finish(database, job_id, GOOD, "first")
    assert finish(database, job_id, GOOD, "second")
    assert not finish(database, job_id, BAD, "second")
    assert job_of(database, job_id).state == State.QUEUED


def test_many_owners_take_different_jobs_oldest_first(database: Database) -> None:
    jobs = [make_job(database, State.VALIDATING, created_at=after(number)) for number in range(5)]
    assert claim(database, None, "first") == jobs[0]
    taken = together([partial(claim, database, None, f"owner{number}") for number in range(6)])
    assert sorted(job_id for job_id in taken if job_id) == sorted(jobs[1:])


def test_one_job_goes_to_one_of_many(database: Database) -> None:
    job_id = make_job(database, State.VALIDATING)
    taken = together([partial(claim, database, job_id, f"owner{number}") for number in range(6)])
    assert [job for job in taken if job is not None] == [job_id]


def test_a_cancelled_job_is_neither_claimed_nor_queued(database: Database) -> None:
    job_id, waiting = make_job(database, State.VALIDATING), make_job(database, State.VALIDATING)
    claim(database, job_id)
    for each in (job_id, waiting):
        with database.session() as session:
            assert request_cancel(session, each).state == State.CANCELLED
    assert not finish(database, job_id, GOOD)
    assert job_of(database, job_id).state == State.CANCELLED
    assert claim(database, waiting) is None
