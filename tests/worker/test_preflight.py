"""Preflights: what the look says is kept, and a look that crashes, hangs or loses its parent ends all the same."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from api.core.moves import request_cancel
from api.core.states import State
from tests.worker.world import FAKE_TRAINER, World, wait_for
from worker import tether
from worker.preflight import Preflighter
from worker.process import Identity


def look(world: World, job_id: str, timeout_s: float = 60.0) -> None:
    settings = world.settings.model_copy(update={"preflight_timeout_s": timeout_s})
    program = (sys.executable, str(FAKE_TRAINER), "preflight")
    assert Preflighter(world.db, world.storage, settings, program).run_one(job_id) == job_id


def test_a_good_report_queues_the_job(both_worlds: World) -> None:
    world = both_worlds
    report = {"ok": True, "planned_steps": 7, "n_train_rows": 3}
    job_id = world.submit(state=State.VALIDATING, fake_preflight=report)
    look(world, job_id)
    job = world.job(job_id)
    assert (job.state, job.planned_steps, job.preflight["n_train_rows"]) == (State.QUEUED, 7, 3)
    assert not list((world.settings.runs_dir / job_id).iterdir())


def test_a_fault_that_was_found_fails_the_job_with_its_cause(world: World) -> None:
    report = {"ok": False, "cause": {"code": "no_trainable_tokens", "message": "nothing to learn", "line": 3}}
    job_id = world.submit(state=State.VALIDATING, fake_preflight=report)
    look(world, job_id)
    job = world.job(job_id)
    assert (job.state, job.cause["code"], job.cause["line"]) == (State.FAILED, "no_trainable_tokens", 3)


def test_a_crash_is_tried_again_and_then_told_with_its_last_words(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    job_id = world.submit(state=State.VALIDATING, fake_preflight={})
    look(world, job_id)
    job = world.job(job_id)
    assert (job.state, job.cause["code"]) == (State.FAILED, "internal")
    assert "crashed 3 times: the fake preflight crashes as asked" in job.cause["message"]
    assert job.cause["details"]["log_tail"][-1] == "the fake preflight crashes as asked"


def test_a_look_that_hangs_is_ended(world: World) -> None:
    job_id = world.submit(state=State.VALIDATING, fake_preflight={"ok": True, "sleep_s": 300})
    began = time.monotonic()
    look(world, job_id, timeout_s=1.0)
    assert time.monotonic() - began < 10
    assert world.job(job_id).cause["code"] == "timeout"


def test_nothing_waits_and_nothing_is_done(world: World) -> None:
    assert Preflighter(world.db, world.storage, world.settings).run_one() is None


def test_a_tethered_process_dies_with_its_parent(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    child = f"import os, time; open({str(file)!r}, 'w').write(str(os.getpid())); time.sleep(300)"
    code = (
        "import os, subprocess, sys, time\n"
        f"argv = [sys.executable, '-I', '-S', {tether.__file__!r}, str(os.getpid()), sys.executable, '-c', {child!r}]\n"
        "subprocess.Popen(argv, start_new_session=True)\n"
        "time.sleep(300)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    wait_for(lambda: file.exists() and file.read_text(), "the child")
    tethered = Identity.of(int(file.read_text()))
    assert tethered is not None
    parent.kill()
    parent.wait()
    wait_for(lambda: not tethered.is_alive(), "the child to die", 5)


def test_a_claim_is_held_while_the_look_takes_long(world: World) -> None:
    settings = world.settings.model_copy(update={"attempt_lease_s": 0.4})
    job_id = world.submit(state=State.VALIDATING, fake_preflight={"ok": True, "planned_steps": 5, "sleep_s": 2})
    program = (sys.executable, str(FAKE_TRAINER), "preflight")
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(Preflighter(world.db, world.storage, settings, program).run_one)
        wait_for(lambda: world.job(job_id).n_preflights, "the claim")
        time.sleep(1.0)  # more than the lease
        assert Preflighter(world.db, world.storage, settings, program).run_one() is None
        assert looking.result(20) == job_id
    assert (world.job(job_id).state, world.job(job_id).n_preflights) == (State.QUEUED, 1)


def test_a_look_at_a_cancelled_job_is_ended(world: World) -> None:
    settings = world.settings.model_copy(update={"attempt_lease_s": 0.4})
    job_id = world.submit(state=State.VALIDATING, fake_preflight={"ok": True, "sleep_s": 300})
    program = (sys.executable, str(FAKE_TRAINER), "preflight")
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(Preflighter(world.db, world.storage, settings, program).run_one)
        wait_for(lambda: world.job(job_id).n_preflights, "the claim")
        with world.db.session() as session:
            request_cancel(session, job_id)
        assert looking.result(10) == job_id
    assert world.job(job_id).state == State.CANCELLED
