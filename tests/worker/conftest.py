"""A node with real processes for the tests of the worker; whatever a test leaves running is killed after it."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from api.core.db import Database
from api.core.tables import Attempt
from tests.worker.world import World, short_settings, wait_for
from worker.folder import live_runs
from worker.leader import LEADER_FILE
from worker.process import Identity, members, send


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """Short, as in production: sockets in it have a longest path."""
    folder = Path(tempfile.mkdtemp(prefix="ty-"))
    yield folder
    wait_for(lambda: _is_removed(folder), f"{folder} to be left alone", 10)


def _is_removed(folder: Path) -> bool:
    """The last nudge of a supervisor may still be writing its message."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


@pytest.fixture
def world(sqlite_url: str, data_dir: Path) -> Iterator[World]:
    """On SQLite; what concerns the database more than processes takes `both_worlds`."""
    yield from _world(sqlite_url, data_dir)


@pytest.fixture
def both_worlds(database_url: str, data_dir: Path) -> Iterator[World]:
    """Once on each database."""
    yield from _world(database_url, data_dir)


def _world(database_url: str, data_dir: Path) -> Iterator[World]:
    db = Database(database_url)
    world = World(db, short_settings(data_dir, database_url))
    yield world
    end_everything(world)
    db.close()


def end_everything(world: World) -> None:
    """Kill what a failed test left, then wait until every supervisor has left: they write until their last moment."""
    with world.db.reading() as session:
        found = {row.id: row.supervisor for row in session.scalars(select(Attempt))}
    supervisors = [Identity(**one) for one in found.values() if one and one["pid"] != os.getpid()]
    for attempt_id, place in live_runs(world.settings).items():
        send([Identity(**one) for one in [found.get(attempt_id)] if one and one["pid"] != os.getpid()], signal.SIGKILL)
        leader = Identity.read(place / LEADER_FILE)
        if leader is not None:
            send([*members(leader, attempt_id), leader], signal.SIGKILL)
    wait_for(lambda: not any(one.is_alive() for one in supervisors), "the supervisors to leave", 10)
