"""The plan: properties for any queue and any nodes, then the cases people ask about."""

from __future__ import annotations

import time
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.core import leases, scheduling
from api.core.db import Database
from api.core.scheduling import FreeNode, Placement, Waiting, explain, in_order, plan
from api.core.settings import Settings
from api.core.states import State
from tests.api.core.rows import T0, after, events_of, holders, job_of, make_job, make_node, together


def job(name: str, n_devices: int = 1, priority: int = 0, waits_since: float = 0) -> Waiting:
    return Waiting(name, n_devices, priority, after(waits_since))


def node(name: str, free: int, n_devices: int | None = None) -> FreeNode:
    return FreeNode(f"id-{name}", name, tuple(range(free)), free if n_devices is None else n_devices)


@st.composite
def queues(draw: st.DrawFn) -> list[Waiting]:
    count = draw(st.integers(0, 25))
    return [
        job(f"j{number:02}", draw(st.integers(1, 9)), draw(st.integers(-1, 1)), draw(st.integers(0, 5)))
        for number in range(count)
    ]


@st.composite
def clusters(draw: st.DrawFn) -> list[FreeNode]:
    found = []
    for number in range(draw(st.integers(0, 6))):
        indexes = draw(st.sets(st.integers(0, 7), max_size=8))
        found.append(FreeNode(f"n{number}", f"n{number}", tuple(sorted(indexes)), draw(st.integers(len(indexes), 8))))
    return found


@given(queues(), clusters())
def test_no_device_is_given_twice_and_gangs_are_whole(waiting: list[Waiting], nodes: list[FreeNode]) -> None:
    placements = plan(waiting, nodes)
    given_devices = Counter((place.node_id, index) for place in placements for index in place.devices)
    assert all(count == 1 for count in given_devices.values())
    assert len({place.job_id for place in placements}) == len(placements)
    needs = {job.job_id: job.n_devices for job in waiting}
    free = {node.node_id: set(node.free) for node in nodes}
    for place in placements:
        assert len(place.devices) == needs[place.job_id]
        assert set(place.devices) <= free[place.node_id]


@given(queues(), clusters())
def test_nobody_with_the_same_needs_overtakes(waiting: list[Waiting], nodes: list[FreeNode]) -> None:
    placed = {place.job_id for place in plan(waiting, nodes)}
    ordered = in_order(waiting)
    for earlier_at, earlier in enumerate(ordered):
        for later in ordered[earlier_at + 1 :]:
            if later.n_devices >= earlier.n_devices and later.job_id in placed:
                assert earlier.job_id in placed


@given(queues(), clusters())
def test_what_fits_first_in_line_is_placed(waiting: list[Waiting], nodes: list[FreeNode]) -> None:
    ordered = in_order(waiting)
    largest_free = max((len(node.free) for node in nodes), default=0)
    if ordered and ordered[0].n_devices <= largest_free:
        assert plan(waiting, nodes)[0].job_id == ordered[0].job_id


@given(queues(), clusters())
def test_the_order_the_rows_come_in_does_not_matter(waiting: list[Waiting], nodes: list[FreeNode]) -> None:
    assert plan(waiting[::-1], nodes[::-1]) == plan(waiting, nodes)


@given(queues(), clusters())
def test_everybody_who_waits_is_told_why(waiting: list[Waiting], nodes: list[FreeNode]) -> None:
    told = explain(waiting, nodes)
    assert [told[job.job_id].position for job in in_order(waiting)] == list(range(1, len(waiting) + 1))
    about_to_start = {job_id for job_id, standing in told.items() if standing.reason == "about to start"}
    assert about_to_start == {place.job_id for place in plan(waiting, nodes)}


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=4),
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=60),
)
def test_a_large_job_is_not_starved_by_small_ones(
    sizes: list[int], wanted: int, arrivals: list[tuple[int, int]]
) -> None:
    """Small jobs keep coming, a few a round, each running 1 to 4 rounds; the large one starts soon after it comes."""
    wanted = min(wanted, max(sizes))
    free = {f"n{number}": set(range(size)) for number, size in enumerate(sizes)}
    waiting = [job(f"small{number}", 1, waits_since=-1) for number in range(sum(sizes))] + [job("large", wanted)]
    running: list[tuple[int, Placement]] = []
    for moment in range(8):
        waiting += [job(f"late{moment}-{k}", min(size, wanted), 0, 1) for k, (size, _) in enumerate(arrivals)]
        nodes = [FreeNode(name, name, tuple(sorted(indexes)), sizes[int(name[1:])]) for name, indexes in free.items()]
        for place in plan(waiting, nodes):
            if place.job_id == "large":
                return
            free[place.node_id] -= set(place.devices)
            running.append((moment + 1 + len(running) % 4, place))
        placed = {place.job_id for _, place in running}
        waiting = [entry for entry in waiting if entry.job_id not in placed]
        for ends_at, place in running:
            if ends_at == moment + 1:
                free[place.node_id] |= set(place.devices)
    pytest.fail("the large job never started")


def test_priority_goes_before_age_and_age_before_nothing() -> None:
    waiting = [job("young", waits_since=5), job("old", waits_since=1), job("urgent", priority=1, waits_since=9)]
    assert [place.job_id for place in plan(waiting, [node("a", 3)])] == ["urgent", "old", "young"]


def test_the_tightest_node_is_taken() -> None:
    nodes = [node("large", 8), node("small", 2), node("middle", 4)]
    assert [place.node_id for place in plan([job("two", 2)], nodes)] == ["id-small"]


def test_small_jobs_still_go_where_nothing_is_kept_free() -> None:
    nodes = [node("a", 1, 4), node("b", 1, 2)]
    waiting = [job("large", 4), job("small", 1, waits_since=1), job("another", 1, waits_since=2)]
    assert plan(waiting, nodes) == [Placement("small", "id-b", (0,))]


def test_reasons_in_words() -> None:
    nodes = [node("a", 1, 4), node("b", 0, 2)]
    waiting = [job("huge", 16), job("large", 4, waits_since=1), job("small", 1, waits_since=2)]
    told = explain(waiting, nodes)
    assert told["huge"] == (
        1,
        "needs 16 devices on one node; the largest node that answers, a, has 4: "
        "ask for fewer processes or add a larger node",
    )
    assert told["large"] == (2, "needs 4 devices; waits for 3 more on a, which is kept free for it")
    assert told["small"] == (3, "needs 1 device; 2 jobs are before it")
    assert explain([job("x")], [])["x"].reason == "needs 1 device; no node with devices answers: start a worker"


def test_a_plan_for_many_jobs_and_nodes_takes_no_time() -> None:
    """Ten thousand jobs on two thousand nodes; a quadratic plan would need minutes."""
    waiting = [job(f"j{number}", 1 + number % 9, number % 3, number) for number in range(10_000)]
    nodes = [FreeNode(f"n{number}", "n", tuple(range(number % 9)), 8) for number in range(2_000)]
    began_at = time.process_time()
    plan(waiting, nodes)
    assert time.process_time() - began_at < 5


def settings_for(folder: Path, **values: float) -> Settings:
    """Messages go into the test's own folder."""
    return Settings(data_dir=folder, **values)  # type: ignore[arg-type]


def test_a_look_places_what_fits(database: Database, tmp_path: Path) -> None:
    node_id = make_node(database, 3, at=T0)
    first, second, third = (make_job(database, n_devices=2, queued_at=after(k)) for k in range(3))
    settings = settings_for(tmp_path)
    assert scheduling.run_once(database, "me", settings, at=after(10)) == 1
    assert [job_of(database, job_id).state for job_id in (first, second, third)] == ["starting", "queued", "queued"]
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
