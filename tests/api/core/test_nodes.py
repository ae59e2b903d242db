"""Nodes come back with other devices without disturbing what runs; listings say who holds what."""

from __future__ import annotations

import pytest

from api.core import nodes
from api.core.db import Database
from api.core.errors import NotFound
from api.core.nodes import DeviceFact
from tests.api.core.rows import T0, after, holders, make_node, make_run, together


def test_registering_again_keeps_the_node_and_what_runs_there(database: Database) -> None:
    run = make_run(database, started=True)
    with database.reading() as session:
        name = nodes.listing(session)[0].node.name
    found = [DeviceFact(index=index, kind="cpu", name="new name") for index in (0, 2)]
    with database.session() as session:
        node = nodes.register(session, name, found, {"cores": 4}, {"zone": "a"}, at=after(5))
        assert node.id == run.node_id
    with database.reading() as session:
        view = nodes.listing(session)[0]
    assert (view.node.facts, view.node.labels, view.node.beat_at) == ({"cores": 4}, {"zone": "a"}, after(5))
    assert [(device.index, device.is_present, device.name) for device in view.devices] == [
        (0, True, "new name"),
        (1, False, "CPU slot"),
        (2, True, "new name"),
    ]
    assert holders(database, run.node_id) == [run.attempt_id, run.attempt_id, None]
    assert view.job_ids == {0: run.job_id, 1: run.job_id}
    assert view.n_free == 1


def test_a_node_registered_by_many_at_once_is_one_node(database: Database) -> None:
    ids = together([lambda: make_node(database, 3)] * 5)
    assert len(set(ids)) == 1
    with database.reading() as session:
        assert [len(view.devices) for view in nodes.listing(session)] == [3]


def test_a_node_without_devices_is_listed(database: Database) -> None:
    make_node(database, 0, at=T0)
    with database.reading() as session:
        assert [(view.devices, view.n_free) for view in nodes.listing(session)] == [([], 0)]


def test_a_beat_of_an_unknown_node_is_told_so(database: Database) -> None:
    with database.session() as session, pytest.raises(NotFound):
        nodes.beat(session, "node_none", {})
