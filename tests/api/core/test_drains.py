"""Nodes taken out of work: draining, then held empty, over beats, restarts and silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from api.core import attempts, nodes, scheduling, sweeping
from api.core.attempts import Outcome
from api.core.db import Database
from api.core.errors import NotFound
from api.core.nodes import DeviceFact
from api.core.settings import Settings
from api.core.states import NodeState, State
from api.core.tables import Node
from tests.api.core.rows import T0, after, holders, job_of, make_job, make_node, make_run, together

FACTS = [DeviceFact(index=index, kind="cpu", name="CPU slot") for index in range(2)]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, attempt_lease_s=60, lost_after_s=300)


def drain(database: Database, node_id: str) -> str:
    with database.session() as session:
        nodes.hold(session, nodes.find(session, node_id), NodeState.DRAINING)
    return state_of(database, node_id)


def release(database: Database, node_id: str) -> str:
    with database.session() as session:
        nodes.release(session, nodes.find(session, node_id))
    return state_of(database, node_id)


def state_of(database: Database, node_id: str) -> str:
    with database.reading() as session:
        return session.get_one(Node, node_id).state


def beat(database: Database, node_id: str, at_s: float = 0) -> str:
    with database.session() as session:
        nodes.beat(session, node_id, at=after(at_s))
    return state_of(database, node_id)


def sweep(database: Database, settings: Settings, at_s: float) -> None:
    sweeping.sweep(database, settings, watching_since=after(-1000), at=after(at_s))


def test_an_empty_node_is_drained_at_once_and_stays_so_over_beats_and_restarts(database: Database) -> None:
    node_id = make_node(database, 2, at=T0)
    assert drain(database, node_id) == "cordoned"
    assert drain(database, node_id) == "cordoned"
    assert beat(database, node_id) == "cordoned"
    with database.session() as session:
        nodes.register(session, "node1", FACTS, {}, {}, at=after(5))
    assert state_of(database, node_id) == "cordoned"
    assert release(database, node_id) == "ready"


def test_a_drain_ends_when_the_last_run_has(database: Database, settings: Settings) -> None:
    run = make_run(database, started=True)
    assert drain(database, run.node_id) == "draining"
    sweep(database, settings, 1)
    assert beat(database, run.node_id) == "draining"
    assert job_of(database, run.job_id).state == State.RUNNING
    with database.session() as session:
        attempts.end(session, run.attempt_id, Outcome(result="succeeded"))
    sweep(database, settings, 2)
    assert state_of(database, run.node_id) == "cordoned"


def test_nothing_is_placed_on_a_node_that_is_held(database: Database, settings: Settings) -> None:
    node_id, job_id = make_node(database, 2, at=T0), make_job(database)
    drain(database, node_id)
    assert scheduling.run_once(database, "me", settings, at=after(1)) == 0
    with database.session() as session:
        assert attempts.place(session, job_id, node_id, [0]) is None, "not by a plan made before the drain either"
    assert job_of(database, job_id).state == State.QUEUED
    release(database, node_id)
    assert scheduling.run_once(database, "me", settings, at=after(2)) == 1


def test_a_held_node_that_falls_silent_comes_back_held(database: Database, settings: Settings) -> None:
    run = make_run(database, started=True)
    drain(database, run.node_id)
    sweep(database, settings, 61)
    assert state_of(database, run.node_id) == "unreachable"
    assert beat(database, run.node_id, 62) == "draining"


def test_uncordon_of_a_silent_node_does_not_make_it_ready(database: Database, settings: Settings) -> None:
    node_id = make_node(database, 2, at=T0)
    drain(database, node_id)
    sweep(database, settings, 61)
    assert release(database, node_id) == "unreachable"
    assert beat(database, node_id, 62) == "ready"


def test_an_unreachable_node_can_be_held(database: Database, settings: Settings) -> None:
    node_id = make_node(database, 2, at=T0)
    sweep(database, settings, 61)
    assert drain(database, node_id) == "unreachable"
    assert beat(database, node_id, 62) == "cordoned"


def test_a_drain_racing_placements_leaves_no_run_unseen(database: Database) -> None:
    for round_ in range(5):
        node_id, job_id = make_node(database, 2, name=f"race{round_}"), make_job(database)
        seen: list[str] = []

        def place(job_id: str = job_id, node_id: str = node_id) -> bool:
            with database.session() as session:
                return attempts.place(session, job_id, node_id, [0]) is not None

        def hold(node_id: str = node_id, seen: list[str] = seen) -> bool:
            with database.session() as session:
                found = nodes.find(session, node_id)
                nodes.hold(session, found, NodeState.DRAINING)
                seen += [job for job, _ in nodes.runs_on(session, node_id)]
            return True

        calls: list[Callable[[], bool]] = [place, hold]
        is_placed, _ = together(calls)
        assert seen == ([job_id] if is_placed else [])
        assert (holders(database, node_id)[0] is not None) == is_placed


def test_a_node_that_is_not_there_is_not_found(database: Database) -> None:
    with database.session() as session, pytest.raises(NotFound):
        nodes.find(session, "nowhere")
