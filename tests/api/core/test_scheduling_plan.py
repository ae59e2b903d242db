"""The plan: properties for any queue, nodes, running jobs and limits, then the cases people ask about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.core.planning.forecast import explain
from api.core.planning.model import FreeNode, Limits, Needs, Part, Placement, Plan, Policy, Running, Usage, Waiting
from api.core.planning.plan import plan
from api.core.planning.shares import Span, in_order, merged, usage_of
from tests.api.core.rows import after

GIB = 1024**3
NEEDS = [Needs(), Needs(kind="cuda"), Needs(min_memory_bytes=40 * GIB), Needs(labels=frozenset({("zone", "a")})),
         Needs(excluded=frozenset({("n0", None)})), Needs(excluded=frozenset({("n1", 0), ("n1", 1)}))]  # fmt: skip


def job(name: str, n_devices: int = 1, priority: int = 0, waits_since: float = 0, **values: Any) -> Waiting:
    return Waiting(name, n_devices, priority, after(waits_since), **values)


def node(name: str, free: int, n_devices: int | None = None, **values: Any) -> FreeNode:
    size = free if n_devices is None else n_devices
    return FreeNode(f"id-{name}", name, tuple(range(free)), tuple(range(size)), **values)


def run(name: str, where: FreeNode, *devices: int, **values: Any) -> Running:
    return Running(name, (Part(where.node_id, devices),), **values)


queues = st.lists(
    st.builds(
        lambda n, p, since, project, user, needs, limit: (n, p, since, project, user, needs, limit),
        st.integers(1, 9), st.integers(-1, 1), st.integers(0, 5), st.sampled_from("abc"), st.sampled_from("uv"),
        st.sampled_from(NEEDS), st.sampled_from([None, 30.0, 500.0]),
    ),
    max_size=25,
).map(lambda rows: [
    job(f"j{number:02}", n, p, since, project=project, user=user, needs=needs, limit_s=limit)
    for number, (n, p, since, project, user, needs, limit) in enumerate(rows)
])  # fmt: skip

policies = st.builds(
    lambda devices, running, hours, typical: Policy(
        default_limits={"project": Limits(devices=devices, device_hours=hours), "user": Limits(running=running)},
        typical_run_s=typical,
    ),
    st.sampled_from([None, 2, 9]), st.sampled_from([None, 1, 4]), st.sampled_from([None, 1.0]),
    st.sampled_from([None, 100.0]),
)  # fmt: skip
usages = st.builds(
    lambda a, b: Usage({"a": a, "b": b}, {("project", "a"): a, ("project", "b"): b}),
    st.sampled_from([0.0, 100.0, 3600.0]), st.sampled_from([0.0, 7200.0]),
)  # fmt: skip


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[FreeNode], list[Running]]:
    """Nodes with whatever runs on them; some devices are held by nobody we know, some runs are on nodes now gone."""
    nodes, running = [], []
    for number in range(draw(st.integers(0, 6))):
        devices = tuple(range(draw(st.integers(1, 8))))
        free, taken = [], []
        for index in devices:
            (free if draw(st.booleans()) else taken).append(index)
        kind, memory = draw(st.sampled_from([("cpu", None), ("cuda", 24 * GIB), ("cuda", 80 * GIB)]))
        labels = frozenset({("zone", draw(st.sampled_from("ab")))})
        if draw(st.integers(0, 5)):
            nodes.append(FreeNode(f"n{number}", f"n{number}", tuple(free), devices, kind, memory, labels))
        while taken and draw(st.integers(0, 5)):
            held = tuple(taken.pop() for _ in range(min(len(taken), draw(st.integers(1, 3)))))
            running.append(
                Running(
                    f"r{number}-{held[0]}", (Part(f"n{number}", held),), draw(st.integers(-2, 1)),
                    draw(st.sampled_from("abc")), draw(st.sampled_from("uv")), draw(st.booleans()),
                    draw(st.integers(0, 4)) == 0, draw(st.sampled_from([None, 0.0, 50.0, 1000.0])),
                    draw(st.integers(0, 3)) * 10.0,
                )
            )  # fmt: skip
    return nodes, running


def applied(
    found: Plan, waiting: Sequence[Waiting], nodes: Sequence[FreeNode], running: Sequence[Running]
) -> tuple[list[Waiting], list[FreeNode], list[Running]]:
    """The world right after the plan was carried out."""
    placed = {place.job_id: place for place in found.placements}
    stopped = {each.job_id for each in found.preemptions}
    taken = {(part.node_id, index) for place in found.placements for part in place.parts for index in part.devices}
    left = [each for each in waiting if each.job_id not in placed]
    free = [each._replace(free=tuple(i for i in each.free if (each.node_id, i) not in taken)) for each in nodes]
    going = [each._replace(is_leaving=each.is_leaving or each.job_id in stopped) for each in running]
    started = [
        Running(each.job_id, placed[each.job_id].parts, each.priority, each.project, each.user, left_s=each.limit_s)
        for each in waiting
        if each.job_id in placed
    ]
    return left, free, going + started


@given(queues, clusters(), usages, policies, st.booleans())
def test_no_device_is_given_twice_and_gangs_are_whole(
    waiting: list[Waiting],
    cluster: tuple[list[FreeNode], list[Running]],
    usage: Usage,
    policy: Policy,
    spans: bool,
) -> None:
    nodes, running = cluster
    policy = Policy(default_limits=policy.default_limits, spans_nodes=spans)
    placements = plan(waiting, nodes, running, usage, policy).placements
    given_devices = Counter((part.node_id, index) for p in placements for part in p.parts for index in part.devices)
    assert all(count == 1 for count in given_devices.values())
    assert len({place.job_id for place in placements}) == len(placements)
    jobs = {each.job_id: each for each in waiting}
    by_id = {each.node_id: each for each in nodes}
    for place in placements:
        needs = jobs[place.job_id].needs
        assert sum(len(part.devices) for part in place.parts) == jobs[place.job_id].n_devices
        assert len(place.parts) == 1 or spans
        assert len({len(part.devices) for part in place.parts}) == 1
        for part in place.parts:
            assert set(part.devices) <= set(by_id[part.node_id].free)
            assert by_id[part.node_id].suits(needs)
            assert not {(part.node_id, index) for index in part.devices} & needs.excluded


@given(queues, clusters(), usages, policies)
def test_limits_hold_after_every_plan(
    waiting: list[Waiting], cluster: tuple[list[FreeNode], list[Running]], usage: Usage, policy: Policy
) -> None:
    nodes, running = cluster
    found = plan(waiting, nodes, running, usage, policy)
    _, _, after_it = applied(found, waiting, nodes, running)
    placed = {place.job_id for place in found.placements}
    of_project, of_user = policy.default_limits["project"], policy.default_limits["user"]
    for each in waiting:
        if each.job_id not in placed:
            continue
        if of_project.devices is not None:
            assert sum(r.n_devices for r in after_it if r.project == each.project) <= of_project.devices
        if of_user.running is not None:
            assert sum(r.user == each.user for r in after_it) <= of_user.running
        if of_project.device_hours is not None:
            assert usage.window.get(("project", each.project), 0) < of_project.device_hours * 3600


@given(queues, clusters(), usages, policies)
def test_a_plan_carried_out_has_nothing_left_to_do(
    waiting: list[Waiting], cluster: tuple[list[FreeNode], list[Running]], usage: Usage, policy: Policy
) -> None:
    """The next look over an unchanged world places nobody and, above all, stops nobody."""
    nodes, running = cluster
    first = plan(waiting, nodes, running, usage, policy)
    world = applied(first, waiting, nodes, running)
    second = plan(*world, usage, policy)
    assert not second.preemptions or len(first.preemptions) >= policy.max_preempting
    if not first.preemptions:
        assert not second.placements


@given(queues, clusters(), usages, policies)
def test_only_lower_and_willing_runs_are_preempted_and_for_somebody_who_waits(
    waiting: list[Waiting], cluster: tuple[list[FreeNode], list[Running]], usage: Usage, policy: Policy
) -> None:
    nodes, running = cluster
    found = plan(waiting, nodes, running, usage, policy)
    runs = {each.job_id: each for each in running}
    jobs = {each.job_id: each for each in waiting}
    for each in found.preemptions:
        victim, winner = runs[each.job_id], jobs[each.for_job_id]
        assert victim.is_preemptible
        assert not victim.is_leaving
        assert victim.priority < winner.priority
        assert winner.job_id in found.kept
    assert len({each.job_id for each in found.preemptions}) == len(found.preemptions)


@given(queues, clusters(), usages, policies)
def test_the_order_the_rows_come_in_does_not_matter(
    waiting: list[Waiting], cluster: tuple[list[FreeNode], list[Running]], usage: Usage, policy: Policy
) -> None:
    nodes, running = cluster
    assert plan(waiting[::-1], nodes[::-1], running[::-1], usage, policy) == plan(
        waiting, nodes, running, usage, policy
    )


@given(queues, clusters())
def test_nobody_with_the_same_needs_overtakes_without_a_time_limit(
    waiting: list[Waiting], cluster: tuple[list[FreeNode], list[Running]]
) -> None:
    nodes, running = cluster
    found = plan(waiting, nodes, running)
    placed = {place.job_id for place in found.placements}
    for at, earlier in enumerate(found.ordered):
        for later in found.ordered[at + 1 :]:
            is_larger = later.needs == earlier.needs and later.n_devices >= earlier.n_devices
            if is_larger and later.limit_s is None and later.job_id in placed:
                assert earlier.job_id in placed


@given(queues, clusters(), usages, policies)
def test_everybody_who_waits_is_told_why_and_when(
    waiting: list[Waiting], cluster: tuple[list[FreeNode], list[Running]], usage: Usage, policy: Policy
) -> None:
    nodes, running = cluster
    told = explain(waiting, nodes, running, usage, policy)
    found = plan(waiting, nodes, running, usage, policy)
    assert [told[each.job_id].position for each in found.ordered] == list(range(1, len(waiting) + 1))
    starting = {job_id for job_id, standing in told.items() if standing.reason == "about to start"}
    assert starting == {place.job_id for place in found.placements}
    for job_id, standing in told.items():
        assert standing.reason
        assert standing.eta_s is None or standing.eta_s >= 0
        assert (job_id in starting) <= (standing.eta_s == 0)


@given(st.dictionaries(st.sampled_from("abc"), st.floats(0, 1e6)), queues)
def test_the_order_takes_turns_between_projects_and_keeps_age_within_one(
    shares: dict[str, float], waiting: list[Waiting]
) -> None:
    ordered = in_order(waiting, shares, Policy())
    assert sorted(ordered) == sorted(waiting)
    assert [each.priority for each in ordered] == sorted((each.priority for each in ordered), reverse=True)
    for project in "abc":
        mine = [(-each.priority, each.queued_at, each.job_id) for each in ordered if each.project == project]
        assert mine == sorted(mine)


@given(st.lists(st.builds(Span, st.sampled_from("ab"), st.sampled_from("uv"), st.integers(1, 8),
                          st.floats(10, 1e6), st.floats(0, 10)), max_size=8))  # fmt: skip
def test_usage_can_be_added_up_in_pieces(spans: list[Span]) -> None:
    """What ended is summed now and then, what runs at every look."""
    whole = usage_of(spans, half_life_s=3600, window_s=7200)
    pieces = merged(
        usage_of(spans[:3], half_life_s=3600, window_s=7200), usage_of(spans[3:], half_life_s=3600, window_s=7200)
    )
    assert pieces.shares == pytest.approx(whole.shares)
    assert pieces.window == pytest.approx(whole.window)


def test_usage_is_halved_by_a_half_life_and_cut_at_the_window() -> None:
    recent = usage_of([Span("p", "u", 2, 10, 0)], half_life_s=1000, window_s=100)
    old = usage_of([Span("p", "u", 2, 1010, 1000)], half_life_s=1000, window_s=100)
    assert old.shares["p"] == pytest.approx(recent.shares["p"] / 2)
    assert recent.window == {("project", "p"): 20, ("user", "u"): 20}
    assert old.window == {}
    assert usage_of([Span("p", "u", 1, 150, 50)], half_life_s=1000, window_s=100).window["project", "p"] == 50


def placed(found: Plan) -> list[str]:
    return [place.job_id for place in found.placements]


def test_priority_goes_before_age_and_age_before_nothing() -> None:
    waiting = [job("young", waits_since=5), job("old", waits_since=1), job("urgent", priority=1, waits_since=9)]
    assert placed(plan(waiting, [node("a", 3)])) == ["urgent", "old", "young"]


def test_the_project_that_used_least_for_its_weight_comes_first() -> None:
    waiting = [job("b", project="b"), job("a", project="a", waits_since=9)]
    usage = Usage({"a": 5000, "b": 6000})
    assert placed(plan(waiting, [node("x", 2)], usage=usage)) == ["a", "b"]
    assert placed(plan(waiting, [node("x", 2)], usage=usage, policy=Policy(weights={"b": 2}))) == ["b", "a"]


def test_projects_take_turns() -> None:
    many = [job(f"a{number}", project="a", waits_since=number) for number in range(9)]
    few = [job(f"b{number}", project="b", waits_since=20 + number) for number in range(2)]
    assert [each.job_id for each in plan(many + few, []).ordered][:5] == ["a0", "b0", "a1", "b1", "a2"]


def test_the_tightest_node_is_taken() -> None:
    nodes = [node("large", 8), node("small", 2), node("middle", 4)]
    assert plan([job("two", 2)], nodes).placements == [Placement("two", (Part("id-small", (0, 1)),))]


def test_small_jobs_still_go_where_nothing_is_kept_free() -> None:
    nodes = [node("a", 1, 4), node("b", 1, 2)]
    waiting = [job("large", 4), job("small", 1, waits_since=1), job("another", 1, waits_since=2)]
    assert plan(waiting, nodes).placements == [Placement("small", (Part("id-b", (0,)),))]


def test_a_gap_is_filled_only_by_who_is_gone_in_time() -> None:
    where = node("a", 2, 4)
    running = [run("r", where, 2, 3, left_s=100)]
    waiting = [job("large", 4), job("endless", 1, waits_since=1), job("long", 1, waits_since=2, limit_s=101)]
    found = plan([*waiting, job("short", 1, waits_since=3, limit_s=100)], [where], running)
    assert placed(found) == ["short"]
    assert found.kept["large"] == (("a",), 2, 100.0, False)


def test_each_kind_of_device_has_a_first_in_line_of_its_own() -> None:
    nodes = [node("gpus", 1, 8, kind="cuda"), node("cpus", 1, 4)]
    on_cpu = Needs(kind="cpu")
    waiting = [
        job("eight", 8, needs=Needs(kind="cuda")),
        job("four", 4, needs=on_cpu, waits_since=1),
        job("one", 1, needs=on_cpu, waits_since=2),
    ]
    found = plan(waiting, nodes)
    assert placed(found) == []
    assert set(found.kept) == {"eight", "four"}


def test_the_least_work_is_lost() -> None:
    where = node("a", 0, 3)
    running = [
        run("costly", where, 0, is_preemptible=True, lost_s=500),
        run("cheap", where, 1, is_preemptible=True, lost_s=5),
        run("firm", where, 2),
    ]
    found = plan([job("urgent", 1, priority=1)], [where], running)
    assert [(each.job_id, each.for_job_id) for each in found.preemptions] == [("cheap", "urgent")]
    assert plan([job("equal", 1, priority=0)], [where], running).preemptions == []
    assert plan([job("three", 3, priority=1)], [where], running).preemptions == []


def test_nobody_is_preempted_for_a_job_that_starts_soon_anyway() -> None:
    where = node("a", 0, 2)
    running = [run("ending", where, 0, left_s=30), run("victim", where, 1, is_preemptible=True)]
    assert plan([job("urgent", 1, priority=1)], [where], running).preemptions == []
    assert len(plan([job("urgent", 2, priority=1)], [where], running).preemptions) == 1


def test_a_surplus_victim_is_spared() -> None:
    where = node("a", 0, 4)
    running = [
        run("one", where, 0, is_preemptible=True, lost_s=1),
        run("three", where, 1, 2, 3, is_preemptible=True, lost_s=2),
    ]
    found = plan([job("urgent", 3, priority=1)], [where], running)
    assert [each.job_id for each in found.preemptions] == ["three"]


def test_a_gang_spans_nodes_only_where_it_may() -> None:
    nodes = [node("a", 4), node("b", 3, 4), node("c", 4)]
    gang = job("gang", 6)
    refusal = plan([gang], nodes).refusals["gang"]
    assert "a run does not span nodes here" in refusal
    found = plan([gang], nodes, policy=Policy(spans_nodes=True)).placements
    assert [len(part.devices) for part in found[0].parts] == [3, 3]
    kept = plan([job("all", 12)], nodes, policy=Policy(spans_nodes=True)).kept["all"]
    assert (set(kept.node_names), kept.n_missing) == ({"a", "b", "c"}, 1)


def test_reasons_in_words() -> None:
    nodes = [node("a", 1, 4, kind="cuda"), node("b", 0, 2, kind="cuda")]
    picky = Needs("cuda", 40 * GIB, frozenset({("zone", "b")}))
    waiting = [
        job("huge", 16),
        job("large", 4, waits_since=1),
        job("small", 1, waits_since=2),
        job("picky", needs=picky, waits_since=3),
        job("over", project="p", waits_since=4),
    ]
    policy = Policy(limits={("project", "p"): Limits(running=0)}, weights={"p": 1e-9})
    told = {name: standing.reason for name, standing in explain(waiting, nodes, policy=policy).items()}
    assert told["huge"] == (
        "needs 16 devices on one node; the largest node that answers, a, has 4: "
        "ask for fewer processes or add a larger node (a run does not span nodes here)"
    )
    assert told["large"] == "needs 4 devices; waits for 3 more on a, which is kept free for it"
    assert told["small"].startswith("needs 1 device; ")
    assert told["small"].endswith("before it")
    assert told["picky"] == (
        "needs 1 cuda device with 40 GiB labelled zone=b; no node that answers has such devices: "
        "ask for others or add a node"
    )
    assert told["over"] == "project p runs 0 of the 0 jobs it may run at once"
    assert explain([job("x")], [])["x"].reason == "needs 1 device; no node with devices answers: start a worker"


def test_the_likely_start_follows_the_queue() -> None:
    where = node("a", 0, 2)
    running = [run("r0", where, 0, left_s=100), run("r1", where, 1, left_s=300)]
    waiting = [
        job("first", 1, limit_s=50),
        job("second", 1, waits_since=1, limit_s=500),
        job("third", 2, waits_since=2),
    ]
    told = explain(waiting, [where], running)
    assert [told[name].eta_s for name in ("first", "second", "third")] == [100, 150, 650]
    unknown = [run("r0", where, 0), run("r1", where, 1)]
    assert explain(waiting, [where], unknown)["first"].eta_s is None
    assert explain(waiting, [where], unknown, policy=Policy(typical_run_s=70))["first"].eta_s == 70


@settings(max_examples=20)
@given(queues, clusters())
def test_shrinking_nodes_are_safe(waiting: list[Waiting], cluster: tuple[list[FreeNode], list[Running]]) -> None:
    """Devices and whole nodes disappear under running jobs; nothing is placed on what is gone."""
    nodes, running = cluster
    shrunk = [
        each._replace(free=tuple(i for i in each.free if i % 2), devices=tuple(i for i in each.devices if i % 2))
        for each in nodes[1:]
    ]
    for place in plan(waiting, shrunk, running).placements:
        for part in place.parts:
            assert part.node_id in {each.node_id for each in shrunk}
            assert all(index % 2 for index in part.devices)
