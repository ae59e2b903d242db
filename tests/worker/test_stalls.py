"""A run that stands still is found out, with the stacks of its processes, and its policy is acted upon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from api.core.moves import request_cancel
from api.core.specs import Resolved
from api.core.stalls import StallLimits, StallSpec, limits_of
from api.core.states import Health, State
from api.core.tables import Job
from tests.worker.world import World, short_settings, wait_for
from trainer_core.contract import Phase, RunFolder
from worker import stacks
from worker.process import Identity
from worker.ship import Told
from worker.stall import StallWatch


def start(world: World, stall: StallSpec, n_processes: int = 1, **fake: object) -> tuple[str, str]:
    job_id = world.submit(n_processes, **fake)
    with world.db.session() as session:
        resolved = Resolved.model_validate(session.get_one(Job, job_id).resolved)
        resolved = resolved.model_copy(update={"stall": stall})
        session.execute(update(Job).where(Job.id == job_id).values(resolved=resolved.model_dump(mode="json")))
    attempt_id = world.place(job_id)
    assert world.agent.look() == 1
    return job_id, attempt_id


def read(world: World, job_id: str, name: str) -> str:
    with world.storage.pin(world.artifacts(job_id)[name].storage_key) as pinned:
        return b"".join(pinned.read()).decode()


def test_a_frozen_rank_ends_the_attempt_with_every_stack_and_the_job_is_tried_again(world: World) -> None:
    job_id, attempt_id = start(world, StallSpec(after_s=1), n_processes=2, steps=6, save_every=2, freeze_at=4)
    wait_for(lambda: world.attempt(attempt_id).outcome, "the attempt to end")
    cause = world.attempt(attempt_id).outcome["cause"]
    assert cause["code"] == "stalled"
    assert "Rank 1, pid" in cause["message"]
    assert "stopped by a signal" in cause["message"]
    assert world.processes(attempt_id) == []
    event = world.events(job_id, "stalled")[0]
    found = {one["rank"]: one for one in event.data["stacks"] if not one["is_child"]}
    assert found[1]["state"] == "stopped by a signal"
    assert "wait_for_a_peer" in found[0]["stack"]
    text = read(world, job_id, event.data["artifact"])
    assert "=== rank 0, pid" in text
    assert "=== rank 1, pid" in text
    assert world.wait_until(job_id, State.QUEUED).faults == {"node": 1}
    wait_for(lambda: world.job(job_id).state == State.QUEUED, "the job to wait")
    world.place(job_id)
    world.agent.look()
    assert world.wait_until(job_id, State.SUCCEEDED).step == 6


def test_a_frozen_loader_is_seen_beside_the_rank_that_waits_for_it(world: World) -> None:
    job_id, attempt_id = start(world, StallSpec(after_s=1), steps=6, freeze_loader_at=3)
    wait_for(lambda: world.attempt(attempt_id).outcome, "the attempt to end")
    assert world.attempt(attempt_id).outcome["cause"]["code"] == "stalled"
    stacks_told = world.events(job_id, "stalled")[0].data["stacks"]
    assert [(one["rank"], one["is_child"]) for one in stacks_told] == [(0, False), (0, True)]
    assert "wait_for_a_loader" in stacks_told[0]["stack"]
    assert stacks_told[1]["state"] == "stopped by a signal"


def test_a_job_may_ask_to_be_flagged_only_and_the_flag_falls_with_the_next_step(world: World) -> None:
    spec = StallSpec(after_s=1, action="flag")
    job_id, _ = start(world, spec, steps=12, nap_at=4, nap_s=4.0, step_s=0.1)
    wait_for(lambda: world.job(job_id).health == Health.STALLED, "the flag")
    event = wait_for(lambda: world.events(job_id, "stalled"), "the event")[0]
    assert event.level == "warning"
    wait_for(lambda: event.data["artifact"] in world.artifacts(job_id), "the stacks, while the run goes on")
    assert world.wait_until(job_id, State.SUCCEEDED).health == Health.OK
    assert len(world.events(job_id, "stalled")) == 1
    assert world.events(job_id, "moving")


def test_a_cancel_of_a_stalled_run_is_a_cancel(world: World) -> None:
    spec = StallSpec(after_s=1, action="flag")
    job_id, attempt_id = start(world, spec, n_processes=2, steps=6, freeze_at=3)
    wait_for(lambda: world.events(job_id, "stalled"), "the event")
    with world.db.session() as session:
        request_cancel(session, job_id)
    world.wait_until(job_id, State.CANCELLED)
    assert world.processes(attempt_id) == []


class Clock:
    def __init__(self, folder: Path, limits: StallLimits) -> None:
        self.folder = RunFolder(folder)
        self.folder.scratch.mkdir(parents=True)
        self.watch = StallWatch(self.folder, limits, now_s=0.0)
        self.told = Told()

    def hear(self, now_s: float, phase: Phase) -> None:
        self.told.n_records += 1
        self.told.phase = phase
        assert self.watch.look(self.told, now_s) is None

    def beat(self, now_s: float) -> None:
        path = self.folder.rank_beat(0)
        path.touch()
        os.utime(path, ns=(int(now_s * 1e9), int(now_s * 1e9)))
        assert self.watch.look(self.told, now_s) is None


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path, StallLimits(after_s=10, slow_after_s=100))


@pytest.mark.parametrize("phase", [Phase.LOADING, Phase.TOKENIZING, Phase.SAVING, Phase.EXPORTING])
def test_slow_phases_have_the_longer_limit(clock: Clock, phase: Phase) -> None:
    clock.hear(1, phase)
    clock.beat(2)
    assert clock.watch.look(clock.told, 101) is None
    silence = clock.watch.look(clock.told, 103)
    assert silence is not None
    assert (silence.phase, silence.limit_s) == (phase, 100)
    assert clock.watch.look(clock.told, 500) is None


@pytest.mark.parametrize("phase", [Phase.TRAINING, Phase.EVALUATING])
def test_the_first_step_may_compile_and_beats_alone_are_signs_of_life(clock: Clock, phase: Phase) -> None:
    clock.hear(1, phase)
    assert clock.watch.look(clock.told, 60) is None
    for now_s in range(61, 300, 9):
        clock.beat(now_s)
    silence = clock.watch.look(clock.told, 320)
    assert silence is not None
    assert silence.limit_s == 10
    assert clock.watch.is_stalled
    clock.beat(321)
    assert not clock.watch.is_stalled


def test_a_run_that_never_says_a_word_is_silent_too(clock: Clock) -> None:
    assert clock.watch.look(clock.told, 99) is None
    assert clock.watch.look(clock.told, 100) is not None


def test_a_jobs_own_limits_stand_over_the_operators(tmp_path: Path) -> None:
    settings = short_settings(tmp_path, "sqlite://", stall_after_s=50, stall_slow_after_s=70)
    assert limits_of(StallSpec(), settings) == StallLimits(after_s=50, slow_after_s=70, stops=True)
    own = StallSpec(after_s=90, action="flag")
    assert limits_of(own, settings) == StallLimits(after_s=90, slow_after_s=90, stops=False)
    assert limits_of(StallSpec(after_s=5, slow_after_s=6), settings).slow_after_s == 6


LISTENING = """
import sys, time
from pathlib import Path
from trainer_core.run.heartbeat import write_stacks_on_signal
write_stacks_on_signal(Path(sys.argv[1]))
def where_it_waits():
    print("ready", flush=True)
    time.sleep(100)
where_it_waits()
"""


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Identity]:
    argv = [sys.executable, "-c", LISTENING, str(RunFolder(tmp_path).rank_stacks(3))]
    process = subprocess.Popen(argv, env=os.environ | {"RANK": "3"}, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    identity = Identity.of(process.pid)
    assert identity is not None
    yield identity
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_rank_writes_its_own_stack_where_it_may_not_be_looked_into(
    listening: Identity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "_by_py_spy", lambda _pid: (None, "Permission denied"))
    for _ in range(2):
        (found,) = stacks.take([listening], RunFolder(tmp_path))
        assert (found.rank, found.is_child) == (3, False)
        assert "in where_it_waits" in found.text
        assert found.text.count("in where_it_waits") == 1
    assert listening.is_alive()


def test_a_process_that_does_not_listen_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_by_py_spy", lambda _pid: (None, "Permission denied"))
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(100)"], env={"RANK": "0"})
    time.sleep(0.2)
    identity = Identity.of(process.pid)
    assert identity is not None
    (found,) = stacks.take([identity], RunFolder(tmp_path))
    assert "Permission denied" in found.text
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_py_spy_reads_a_stopped_process(listening: Identity, tmp_path: Path) -> None:
    os.kill(listening.pid, signal.SIGSTOP)
    (found,) = stacks.take([listening], RunFolder(tmp_path))
    assert found.state == "stopped by a signal"
    assert "where_it_waits" in found.text
    assert "where_it_waits" in str(found.where)
