"""Whole lives of a queue, replayed: nobody starves, shares converge, preemption comes to an end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.core.planning.model import FreeNode, Policy
from api.core.planning.plan import plan as simulate_plan
from api.core.planning.simulation import Replay, TraceJob, equal_parts, fifo, jain, simulate


def nodes(*sizes: int, kind: str = "cpu") -> list[FreeNode]:
    return [
        FreeNode(f"n{number}", f"n{number}", tuple(range(size)), tuple(range(size)), kind)
        for number, size in enumerate(sizes)
    ]


def all_ended(replay: Replay) -> bool:
    return set(replay.end_s) == {job.job_id for job in replay.jobs} and not replay.never


traces = st.lists(
    st.builds(
        lambda submit, n, duration, project, priority, preemptible, limited: (
            submit, n, duration, project, priority, preemptible, limited
        ),
        st.integers(0, 400), st.integers(1, 8), st.integers(1, 300), st.sampled_from("abc"), st.integers(-1, 2),
        st.booleans(), st.booleans(),
    ),
    max_size=30,
).map(lambda rows: [
    TraceJob(f"j{k:02}", submit, n, duration, project, "u", priority, preemptible, duration + 60 if limited else None)
    for k, (submit, n, duration, project, priority, preemptible, limited) in enumerate(rows)
])  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(traces, st.lists(st.integers(1, 8), min_size=1, max_size=4))
def test_every_trace_comes_to_an_end(trace: list[TraceJob], sizes: list[int]) -> None:
    """Whatever is submitted ends, once; preemption goes on only as long as somebody of higher priority comes."""
    replay = simulate(trace, nodes(*sizes, 8), Policy())
    assert all_ended(replay)
    for job in trace:
        assert replay.end_s[job.job_id] - replay.first_start_s[job.job_id] >= job.duration_s
    willing = sum(job.is_preemptible for job in trace)
    assert replay.n_preemptions <= willing * len(trace)


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.integers(2, 8), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 2), st.integers(10, 100), st.booleans()), min_size=1, max_size=4),
)
def test_a_large_job_starts_in_time_under_a_flood_of_small_ones(
    sizes: list[int], kinds: list[tuple[int, int, bool]]
) -> None:
    """Small jobs come faster than they can run; what is ahead and what runs is all that the large one waits for."""
    wanted, total = max(sizes), sum(sizes)
    flood = [
        TraceJob(f"s{moment:04}-{k}", moment * 5.0, min(n, wanted), length, limit_s=length if limited else None)
        for moment in range(60)
        for k, (n, length, limited) in enumerate(kinds * total)
    ][:240]
    large = TraceJob("large", 50.0, wanted, 10.0)
    start_s = simulate([*flood, large], nodes(*sizes), Policy()).first_start_s["large"]
    # While somebody ahead waits, the largest node has too few free for a job of two; a look is every two seconds.
    ahead_s = sum(job.n_devices * (job.duration_s + 2) for job in flood if job.submit_s <= 50) / (wanted - 1)
    assert start_s <= 50 + ahead_s + 100 + 20


def test_only_a_higher_priority_can_keep_a_large_job_waiting() -> None:
    """The bound above is no matter of course: against a flood of higher priority it waits."""
    flood = [TraceJob(f"s{moment:04}", moment * 5.0, 1, 30.0, limit_s=30.0) for moment in range(120)]
    large = TraceJob("large", 7.0, 2, 10.0)
    assert simulate([*flood, large], nodes(2), Policy()).first_start_s["large"] <= 42
    lower = large._replace(priority=-1)
    assert simulate([*flood, lower], nodes(2), Policy()).first_start_s["large"] > 1_000


@settings(max_examples=4, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4))
def test_shares_converge_to_the_weights(weight_a: int, weight_b: int) -> None:
    """Two projects that always want more: each gets devices in proportion to its weight."""
    trace = [TraceJob(f"{name}{k:04}", 0.0, 1, 100.0, name, limit_s=100.0) for name in "ab" for k in range(240)]
    replay = simulate(trace, nodes(8), Policy(weights={"a": weight_a, "b": weight_b}), half_life_s=20_000.0)
    until_s = 2_400.0  # both still have jobs waiting
    done = {name: sum(end <= until_s for job, end in replay.end_s.items() if job[0] == name) for name in "ab"}
    assert done["a"] / done["b"] == pytest.approx(weight_a / weight_b, rel=0.1)


def test_a_project_that_was_away_does_not_get_everything_for_ever() -> None:
    """A takes all while alone; when B comes B is ahead for a while, and then both have half."""
    first = [TraceJob(f"a{k:04}", 0.0, 1, 100.0, "a", limit_s=100.0) for k in range(500)]
    second = [TraceJob(f"b{k:04}", 5_000.0, 1, 100.0, "b", limit_s=100.0) for k in range(250)]
    replay = simulate([*first, *second], nodes(4), Policy(), half_life_s=1_000.0)

    def started(name: str, since_s: float, until_s: float) -> int:
        return sum(since_s <= at < until_s for job, at in replay.first_start_s.items() if job[0] == name)

    assert started("b", 5_000, 5_500) > 3 * started("a", 5_100, 5_500)
    assert started("b", 8_000, 11_000) == pytest.approx(started("a", 8_000, 11_000), rel=0.1)


def test_a_preempted_run_goes_on_and_ends() -> None:
    trace = [
        TraceJob("low", 0.0, 4, 1000.0, is_preemptible=True),
        TraceJob("high", 100.0, 4, 200.0, priority=5),
    ]
    replay = simulate(trace, nodes(4), Policy(), leave_s=20, restart_s=60)
    assert replay.n_preemptions == 1
    assert replay.first_start_s["high"] == 120
    assert replay.end_s["high"] == 320
    assert replay.end_s["low"] == 320 + (1000 - 120) + 60


def test_the_plan_beats_first_in_first_out_on_a_mixed_load() -> None:
    """One project floods with wide jobs, another sends small ones now and then."""
    wide = [TraceJob(f"w{k:03}", 0.0, 5, 400.0, "wide", limit_s=500.0) for k in range(30)]
    small = [TraceJob(f"s{k:03}", 100.0 + k * 60, 1, 100.0, "small", limit_s=150.0) for k in range(60)]
    ours, plain = (simulate([*wide, *small], nodes(8, 8), Policy(), decide=each) for each in (simulate_plan, fifo))
    assert ours.utilisation > plain.utilisation
    assert ours.fairness() > plain.fairness()
    assert ours.waits_s()[len(ours.waits_s()) // 2] < plain.waits_s()[len(plain.waits_s()) // 2]


def test_entitlements_are_equal_parts_of_what_is_wanted() -> None:
    assert equal_parts({"a": 1, "b": 10, "c": 10}, 9) == {"a": 1, "b": 4, "c": 4}
    assert equal_parts({"a": 1, "b": 2}, 9) == {"a": 1, "b": 2}


def test_jains_index() -> None:
    assert jain([1, 1, 1]) == 1
    assert jain([1, 0, 0, 0]) == 0.25


def test_what_fits_nowhere_is_named() -> None:
    assert simulate([TraceJob("huge", 0, 9, 1)], nodes(8), Policy()).never == ["huge"]
    assert simulate([TraceJob("gpu", 0, 1, 1, kind="cuda")], nodes(8), Policy()).never == ["gpu"]
