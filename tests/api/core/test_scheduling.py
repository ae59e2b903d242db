"""The scheduler at the database: what it reads, places and preempts, limits, and several schedulers at once."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.core import attempts, leases, nodes, queue_rows, quotas, scheduling
from api.core.attempts import Outcome
from api.core.db import Database
from api.core.errors import Conflict, Invalid, NotFound
from api.core.quotas import QuotaSpec
from api.core.settings import Settings
from api.core.states import State
from tests.api.core.rows import T0, after, events_of, holders, job_of, make_job, make_node, started_record, together


def settings_for(folder: Path, **values: Any) -> Settings:
    """Messages go into the test's own folder."""
    return Settings(data_dir=folder, **values)


def states(database: Database, *job_ids: str) -> list[str]:
    return [job_of(database, job_id).state for job_id in job_ids]


def start(database: Database, job_id: str, node_id: str, *devices: int, seconds: float = 0) -> str:
    """The job runs on the devices since that second."""
    with database.session() as session:
        attempt = attempts.place(session, job_id, node_id, list(devices))
        assert attempt is not None
        attempt.placed_at = after(seconds)
        attempt_id = attempt.id
    with database.session() as session:
        assert attempts.claim_launch(session, attempt_id, at=after(seconds))
        attempts.take_records(session, attempt_id, [started_record(at=after(seconds))], at=after(seconds))
    return attempt_id


def test_a_look_places_what_fits(database: Database, tmp_path: Path) -> None:
    node_id = make_node(database, 3, at=T0)
    first, second, third = (make_job(database, n_devices=2, queued_at=after(k)) for k in range(3))
    settings = settings_for(tmp_path)
    assert scheduling.run_once(database, "me", settings, at=after(10)) == 1
    assert states(database, first, second, third) == ["starting", "queued", "queued"]
    assert holders(database, node_id)[2] is None
    with database.reading() as session:
        told = scheduling.standings(session, settings)
    assert {job_id: standing.position for job_id, standing in told.items()} == {second: 1, third: 2}


def test_a_node_that_is_silent_holds_no_placement(database: Database, tmp_path: Path) -> None:
    make_node(database, 2, at=T0)
    job_id = make_job(database)
    settings = settings_for(tmp_path)
    assert scheduling.run_once(database, "me", settings, at=after(settings.attempt_lease_s + 1)) == 0
    assert job_of(database, job_id).state == State.QUEUED


def test_devices_are_what_the_job_asked_for(database: Database, tmp_path: Path) -> None:
    gib = 1024**3
    mixed = [
        *(nodes.DeviceFact(index=index, kind="cuda", name="small", memory_bytes=24 * gib) for index in (0, 1)),
        *(nodes.DeviceFact(index=index, kind="cuda", name="large", memory_bytes=80 * gib) for index in (2, 3)),
    ]
    with database.session() as session:
        gpus = nodes.register(session, "gpus", mixed, {}, {"zone": "a"}, at=T0).id
    cpus = make_node(database, 2, name="cpus", at=T0)
    large = make_job(database, n_devices=2, constraints={"device": "cuda", "min_memory_bytes": 40 * gib, "labels": {}})
    zoned = make_job(database, constraints={"labels": {"zone": "a"}}, excluded=[{"node_id": gpus, "device": 0}])
    on_cpu = make_job(database, constraints={"device": "cpu"})
    nowhere = make_job(database, constraints={"labels": {"zone": "b"}})
    settings = settings_for(tmp_path)
    assert scheduling.run_once(database, "me", settings, at=after(1)) == 3
    with database.reading() as session:
        where = {each.run.job_id: each.run.parts[0] for each in queue_rows.on_devices(session, after(1))}
        told = scheduling.look(session, settings, after(1))
    assert where[large] == (gpus, (2, 3))
    assert where[zoned] == (gpus, (1,))
    assert where[on_cpu].node_id == cpus
    assert [job.job_id for job in told.waiting] == [nowhere]


def test_the_project_that_used_less_comes_first(database: Database, tmp_path: Path) -> None:
    node_id = make_node(database, 1, at=T0)
    used = make_job(database, project="busy")
    attempt_id = start(database, used, node_id, 0)
    with database.session() as session:
        attempts.end(session, attempt_id, Outcome(result="succeeded", exit_code=0), at=after(500))
    busy = make_job(database, project="busy", queued_at=after(1))
    idle = make_job(database, project="idle", queued_at=after(2))
    with database.session() as session:
        nodes.beat(session, node_id, at=after(510))
    assert scheduling.run_once(database, "me", settings_for(tmp_path), at=after(510)) == 1
    assert states(database, busy, idle) == ["queued", "starting"]


def test_a_preemptible_run_is_asked_to_leave_once(database: Database, tmp_path: Path) -> None:
    node_id = make_node(database, 2, at=T0)
    low = make_job(database, n_devices=2, is_preemptible=True)
    attempt_id = start(database, low, node_id, 0, 1)
    urgent = make_job(database, n_devices=1, priority=5, queued_at=after(1))
    settings = settings_for(tmp_path)
    for moment in (2, 4, 6):
        assert scheduling.run_once(database, "me", settings, at=after(moment)) == 0
    assert job_of(database, low).stop == "preempt"
    asked = [event for event in events_of(database, low) if event.kind == "preempt_requested"]
    assert len(asked) == 1
    assert urgent in asked[0].message
    with database.session() as session:
        attempts.end(session, attempt_id, Outcome(result="stopped", exit_code=75), at=after(8))
    assert scheduling.run_once(database, "me", settings, at=after(9)) == 1
    assert states(database, low, urgent) == ["queued", "starting"]


def test_nobody_is_preempted_where_the_settings_say_so(database: Database, tmp_path: Path) -> None:
    node_id = make_node(database, 1, at=T0)
    low = make_job(database, is_preemptible=True)
    start(database, low, node_id, 0)
    make_job(database, priority=5, queued_at=after(1))
    scheduling.run_once(database, "me", settings_for(tmp_path, preempt=False), at=after(2))
    assert job_of(database, low).stop is None


def test_the_likely_start_comes_from_the_running_jobs_progress(database: Database, tmp_path: Path) -> None:
    node_id = make_node(database, 1, at=T0)
    running = make_job(database, time_limit_s=100)
    start(database, running, node_id, 0, seconds=0)
    with database.reading() as session:
        (found,) = queue_rows.on_devices(session, after(40))
    assert found.run.left_s == 60


def test_limits_of_a_project_hold_and_are_said(database: Database, tmp_path: Path) -> None:
    make_node(database, 4, at=T0)
    jobs = [make_job(database, project="p", queued_at=after(k)) for k in range(3)]
    other = make_job(database, project="q", queued_at=after(9))
    with database.session() as session:
        quotas.put(session, ("project", "p"), QuotaSpec(devices=2))
    settings = settings_for(tmp_path)
    assert scheduling.run_once(database, "me", settings, at=after(10)) == 3
    assert states(database, *jobs, other) == ["starting", "starting", "queued", "starting"]
    with database.reading() as session:
        told = scheduling.standings(session, settings)
    assert told[jobs[2]].reason == "project p holds 2 of the 2 devices it may have at once"
    assert told[jobs[2]].eta_s is None


def test_device_hours_in_the_window_hold_a_user_back(database: Database, tmp_path: Path) -> None:
    node_id = make_node(database, 1, at=T0)
    attempt_id = start(database, make_job(database), node_id, 0)
    with database.session() as session:
        attempts.end(session, attempt_id, Outcome(result="succeeded", exit_code=0), at=after(7200))
        nodes.beat(session, node_id, at=after(7300))
    next_one = make_job(database, queued_at=after(1))
    settings = settings_for(tmp_path, user_max_device_hours=1.5, limit_window_s=10_000)
    assert scheduling.run_once(database, "me", settings, at=after(7300)) == 0
    with database.session() as session:
        nodes.beat(session, node_id, at=after(14_000))
    again = Database(database.url)  # another process: nothing is remembered
    assert scheduling.run_once(again, "me", settings, at=after(14_000)) == 1
    again.close()
    assert states(database, next_one) == ["starting"]


def test_a_start_that_would_go_over_a_limit_is_refused_under_the_lock(database: Database, tmp_path: Path) -> None:
    """A plan may be made from what was true a moment ago."""
    node_id = make_node(database, 2, at=T0)
    first, second = (make_job(database, project="p") for _ in range(2))
    settings = settings_for(tmp_path, project_max_running=1)

    def place(job_id: str, index: int) -> bool:
        with database.session() as session:
            return quotas.allows_start(session, job_id, settings) and (
                attempts.place(session, job_id, node_id, [index]) is not None
            )

    assert sorted(together([partial(place, first, 0), partial(place, second, 1)])) == [False, True]


def test_what_waits_is_limited_at_submit(database: Database, tmp_path: Path) -> None:
    make_job(database, project="p", created_by="me")
    make_job(database, State.SUCCEEDED, project="p", created_by="me")
    with database.session() as session:
        quotas.check_submit(session, "p", "me", 2, settings_for(tmp_path))
        quotas.check_submit(session, "p", "me", 2, settings_for(tmp_path, project_max_queued=2))
        with pytest.raises(Conflict, match="1 jobs of project p wait already"):
            quotas.check_submit(session, "p", "me", 2, settings_for(tmp_path, project_max_queued=1))
        with pytest.raises(Conflict, match="this API key may hold 1 at once"):
            quotas.check_submit(session, "p", "me", 2, settings_for(tmp_path, user_max_devices=1))


def test_limits_are_set_listed_and_taken_back(database: Database, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, project_max_running=7)
    with database.session() as session:
        quotas.put(session, ("project", "p"), QuotaSpec(devices=3, weight=2))
        quotas.put(session, ("user", "key_1"), QuotaSpec(queued=5))
        with pytest.raises(Invalid, match="no weight"):
            quotas.put(session, ("user", "key_1"), QuotaSpec(weight=2))
    with database.session() as session:
        rows = quotas.listing(session)
        assert [(row.scope, row.name) for row in rows] == [("project", "p"), ("user", "key_1")]
        assert quotas.limits_of(rows, settings)["project", "p"] == (3, 7, None, None)
        quotas.remove(session, ("project", "p"))
        with pytest.raises(NotFound):
            quotas.remove(session, ("project", "p"))


def test_the_second_scheduler_does_nothing_until_the_first_is_gone(database: Database, tmp_path: Path) -> None:
    make_node(database, 2, at=after(20))
    make_job(database)
    settings = settings_for(tmp_path)
    with database.session() as session:
        assert leases.take(session, scheduling.LEASE, "other", 10, at=T0)
    assert scheduling.run_once(database, "me", settings, at=after(9)) == 0
    assert scheduling.run_once(database, "me", settings, at=after(11)) == 1


def test_schedulers_that_all_think_they_lead_place_nothing_twice(database: Database, tmp_path: Path) -> None:
    for number in range(3):
        make_node(database, 2, name=f"n{number}", at=T0)
    jobs = [make_job(database, n_devices=1 + number % 2, queued_at=after(number)) for number in range(6)]
    settings = settings_for(tmp_path)

    def look(moment: int) -> int:
        # Each looks a minute after the one before, so that every lease is over when the next is taken.
        return scheduling.run_once(database, f"s{moment}", settings, at=T0 + timedelta(seconds=11 * moment))

    placed = sum(together([partial(look, moment) for moment in range(4)]))
    starting = [job_id for job_id in jobs if job_of(database, job_id).state == State.STARTING]
    assert len(starting) == placed
    assert all(job_of(database, job_id).attempt == 1 for job_id in starting)
    assert all(len(events_of(database, job_id)) == 1 for job_id in starting)
