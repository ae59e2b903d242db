"""The stream that tells job lists of changes: one look for all viewers, and it ends when the service stops."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import httpx

from api.core.states import State
from api.core.tables import Job
from tests.dashboard.filled import Filled


def test_a_change_is_told_and_a_stop_is_not_held_up(tmp_path: Path) -> None:
    service = Filled(tmp_path)
    service.start()
    told: list[float] = []
    ended = threading.Event()

    def listen() -> None:
        headers = {"Authorization": f"Bearer {service.key}"}
        with httpx.stream("GET", f"{service.url}/jobs/changes", headers=headers, timeout=60) as answer:
            told.extend(time.monotonic() for line in answer.iter_lines() if line == "event: changed")
        ended.set()

    job = service.add_job(state=State.RUNNING)
    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    _until(lambda: len(told) >= 2)  # at once, and after the first look
    n_told = len(told)
    time.sleep(2.5)
    assert len(told) == n_told, "told of a change that was none"
    with service.database.session() as session:
        session.get_one(Job, job).step = 5
    _until(lambda: len(told) == n_told + 1)
    began = time.monotonic()
    service.stop()
    assert ended.wait(10)
    assert time.monotonic() - began < 15


def _until(is_so: object) -> None:
    assert callable(is_so)
    give_up_at = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
