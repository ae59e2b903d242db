"""Cancelling at awkward moments: within 15 seconds no process of the run is left, and what was saved is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from api.core.db import Database
from api.core.moves import request_cancel
from api.core.states import State
from tests.live import Json, Service, body, until
from tests.worker.conftest import data_dir, end_everything
from tests.worker.world import World, short_settings
from trainyard import Client

__all__ = ["data_dir"]
ENDLESS = 100_000
LONGEST_S = 15


@pytest.fixture
def patient_world(sqlite_url: str, data_dir: Path) -> Iterator[World]:
    """A node that leaves a run much time to stop by itself."""
    db = Database(sqlite_url)
    world = World(db, short_settings(data_dir, sqlite_url, stop_grace_s=60.0))
    yield world
    end_everything(world)
    db.close()


def test_a_run_that_still_loads_is_not_waited_for(patient_world: World) -> None:
    """It does not look whether it shall stop, and has nothing to lose."""
    job_id, attempt_id = patient_world.start(n_processes=2, load_s=300.0)
    patient_world.wait_until(job_id, State.RUNNING)
    began_at = time.monotonic()
    with patient_world.db.session() as session:
        request_cancel(session, job_id)
    patient_world.wait_until(job_id, State.CANCELLED)
    assert time.monotonic() - began_at < LONGEST_S
    assert patient_world.processes(attempt_id) == []


MOMENTS: dict[str, tuple[Json, Callable[[Service, Json], object]]] = {
    "loader-processes": ({"dataloader_num_workers": 2}, lambda _live, job: job["step"] > 0),
    "loading": ({}, lambda live, job: len(live.run_processes(job["id"])) >= 3),
    "saving": ({"save_steps": 1}, lambda live, job: list(run_folders(live, job).glob("*/checkpoints/.saving-*"))),
}


def run_folders(live: Service, job: Json) -> Path:
    return live.data_dir / "runs" / str(job["id"])


@pytest.mark.train
@pytest.mark.xdist_group("cases")
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_cancelled_run_is_gone_in_time(live: Service, trainyard: Client, chat: str, moment: str) -> None:
    changes, is_there = MOMENTS[moment]
    training: dict[str, Any] = {"logging_steps": 50, "eval_steps": ENDLESS, "save_steps": ENDLESS}
    spec = body(chat, name=moment, steps=ENDLESS, n_processes=2, training=training | changes)
    job_id = trainyard.submit(spec)["id"]
    until(lambda: is_there(live, trainyard.job(job_id)), moment)
    assert trainyard.cancel(job_id)["state"] == "cancelling"
    until(lambda: trainyard.job(job_id)["state"] == "cancelled", "the end", within_s=LONGEST_S)
    assert live.run_processes(job_id) == []
    assert live.used_devices() == []
    for checkpoint in trainyard.checkpoints(job_id):
        trainyard.download(job_id, live.folder / f"{moment}-{checkpoint['step']}", str(checkpoint["step"]))
