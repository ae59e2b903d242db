"""Where a job failed twice it is not placed again, unless it then could be placed nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.core import attempts
from api.core.attempts import Outcome
from api.core.db import Database
from api.core.exclusions import choose
from api.core.settings import Settings
from api.core.states import State
from tests.api.core.rows import events_of, job_of, make_job, make_node
from trainer_core.contract import Cause, CauseCode

NODES = {"a": {0, 1, 2}, "b": {0, 1}}
KILLED = Outcome(result="died", signal=9)


def at(node_id: str, device: int | None = None) -> dict[str, Any]:
    return {"node_id": node_id, "device": device}


@pytest.mark.parametrize(
    ("failed", "n_devices", "expected"),
    [
        ([{0}, {0}], 1, [at("a", 0)]),
        ([{0, 1}, {1, 2}], 2, [at("a", 1)]),
        ([{0}, {1}], 1, [at("a")]),
        ([{0, 1, 2}, {0, 1, 2}], 1, [at("a")]),
        ([], 2, [at("a")]),
        # Three devices are on node a alone: rather a doubtful node than none.
        ([{0, 1, 2}, {0, 1, 2}], 3, []),
        ([], 3, []),
        ([{0}, {0}], 3, []),
    ],
)
def test_the_devices_they_had_in_common_or_the_node(
    failed: list[set[int]], n_devices: int, expected: list[dict[str, Any]]
) -> None:
    assert choose("a", failed, NODES, [], n_devices) == expected


def test_what_was_excluded_before_stays_and_is_named_once() -> None:
    before = [at("a", 0)]
    assert choose("a", [{0}, {0}], NODES, before, 1) == before
    assert choose("a", [{1}, {1}], NODES, before, 1) == [at("a", 0), at("a", 1)]
    assert choose("b", [], NODES, [at("a")], 1) == [at("a")], "then it could be placed nowhere"


@given(st.lists(st.sets(st.integers(0, 2), min_size=1), max_size=4), st.integers(1, 3), st.sampled_from(["a", "b"]))
def test_the_job_can_always_be_placed_somewhere(failed: list[set[int]], n_devices: int, node_id: str) -> None:
    shut = {(each["node_id"], each["device"]) for each in choose(node_id, failed, NODES, [], n_devices)}
    left = [
        sum((name, index) not in shut for index in indexes)
        for name, indexes in NODES.items()
        if (name, None) not in shut
    ]
    assert max(left, default=0) >= n_devices


def fail_on(database: Database, job_id: str, node_id: str, devices: list[int], outcome: Outcome = KILLED) -> State:
    with database.session() as session:
        attempt = attempts.place(session, job_id, node_id, devices)
        assert attempt is not None
        return attempts.end(session, attempt.id, outcome, settings=Settings(max_attempts_node=9))


def test_a_job_keeps_away_from_a_device_that_failed_it_twice(database: Database) -> None:
    node_id, job_id = make_node(database, 3, name="gpu-7"), make_job(database)
    fail_on(database, job_id, node_id, [1])
    assert job_of(database, job_id).excluded == []
    fail_on(database, job_id, node_id, [1])
    assert job_of(database, job_id).excluded == [at(node_id, 1)]
    assert events_of(database, job_id)[-1].message.endswith(
        "it failed twice on device 1 of gpu-7 and keeps away from there"
    )
    assert "keeps away" not in events_of(database, job_id)[-3].message


def test_a_full_disk_is_the_whole_nodes(database: Database) -> None:
    node_id, job_id = make_node(database, 3, name="a"), make_job(database)
    make_node(database, 1, name="b")
    full = Outcome(result="failed", cause=Cause(code=CauseCode.DISK_FULL, message="no space left"))
    fail_on(database, job_id, node_id, [0], full)
    fail_on(database, job_id, node_id, [0], full)
    assert job_of(database, job_id).excluded == [at(node_id)]


@pytest.mark.parametrize(
    "outcome",
    [Outcome(result="stopped"), Outcome(result="launch_failed")],
    ids=["asked to leave", "the service's fault"],
)
def test_only_the_nodes_own_faults_count(database: Database, outcome: Outcome) -> None:
    node_id, job_id = make_node(database, 3, name="a"), make_job(database)
    make_node(database, 1, name="b")
    fail_on(database, job_id, node_id, [0])
    fail_on(database, job_id, node_id, [0], outcome)
    assert job_of(database, job_id).excluded == []


def test_the_only_node_is_tried_until_the_budget_is_spent(database: Database) -> None:
    node_id, job_id = make_node(database, 1, name="a"), make_job(database)
    for _ in range(3):
        assert fail_on(database, job_id, node_id, [0]) == State.QUEUED
    assert job_of(database, job_id).excluded == []
