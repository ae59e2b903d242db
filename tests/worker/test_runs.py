"""A run from its placement to its end, with real processes and a trainer that honours the contract."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from api.core import attempts
from api.core.moves import request_cancel
from api.core.states import State
from tests.worker.world import World, wait_for
from trainer_core.contract import RunConfig
from worker import process, supervise
from worker.folder import read_plan
from worker.process import send
from worker.supervise import Supervisor


def cancel(world: World, job_id: str) -> None:
    with world.db.session() as session:
        request_cancel(session, job_id)


def test_a_run_succeeds_and_leaves_checkpoints_metrics_logs_and_files(both_worlds: World) -> None:
    world = both_worlds
    job_id, attempt_id = world.start(n_processes=2, steps=5)
    job = world.wait_until(job_id, State.SUCCEEDED, State.FAILED)
    assert (job.state, job.cause) == (State.SUCCEEDED, None)
    assert world.steps(job_id) == [1, 2, 3, 4, 5]
    assert sorted(world.checkpoints(job_id)) == [4, 5]
    prefix = world.checkpoints(job_id)[5].storage_prefix
    assert world.storage.size(f"{prefix}/weights.bin") == len(f"{job_id} 5") * 100
    assert {"train_results.json", "logs/attempt-1/rank0.log", "logs/attempt-1/rank1.log"} <= set(
        world.artifacts(job_id)
    )
    assert world.n_taken_devices() == 0
    assert world.processes(attempt_id) == []
    assert world.attempt(attempt_id).outcome["exit_code"] == 0
    exit_file = json.loads((world.run_dir(attempt_id) / "exit.json").read_text())
    assert (exit_file["exit_code"], exit_file["signal"]) == (0, None)


def test_two_runs_at_once_share_nothing(world: World) -> None:
    first, second = world.submit(steps=3), world.submit(steps=3)
    ids = [world.place(first), world.place(second)]
    assert world.agent.look() == 2
    for job_id in (first, second):
        world.wait_until(job_id, State.SUCCEEDED)
    plans = [json.loads((world.run_dir(attempt_id) / "launch.json").read_text()) for attempt_id in ids]
    for name in ("TMPDIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME"):
        assert len({plan["env"][name] for plan in plans}) == 2


def test_the_trainers_environment_holds_no_settings_and_no_secrets(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINYARD_HOST", "127.0.0.1")
    monkeypatch.setenv("HF_TOKEN", "a-secret")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    job_id, attempt_id = world.start(steps=200, step_s=0.05)
    world.wait_for_step(job_id, 1)
    for one in [*world.processes(attempt_id), world.leader(attempt_id)]:
        with open(f"/proc/{one.pid}/environ", "rb") as file:
            names = {entry.split(b"=")[0].decode() for entry in file.read().split(b"\0") if entry}
        assert {name for name in names if name.startswith("TRAINYARD_")} == {"TRAINYARD_RUN"}
        assert not names & {"HF_TOKEN", "ACCELERATE_USE_CPU"}
    cancel(world, job_id)
    world.wait_until(job_id, State.CANCELLED)


def test_a_failure_is_told_with_the_trainers_own_cause(world: World) -> None:
    job_id, _ = world.start(steps=5, fail_at=3)
    job = world.wait_until(job_id, State.FAILED)
    assert job.cause["code"] == "non_finite_loss"
    assert "step 3" in job.cause["message"]
    assert world.steps(job_id) == [1, 2]
    assert sorted(world.checkpoints(job_id)) == [2]


def test_a_killed_rank_is_named_and_the_job_goes_on_from_its_newest_checkpoint(world: World) -> None:
    job_id, attempt_id = world.start(n_processes=2, steps=6, die_at=5)
    world.wait_until(job_id, State.QUEUED)
    outcome = world.attempt(attempt_id).outcome
    assert (outcome["result"], outcome["signal"], outcome["cause"]["rank"]) == ("died", 9, 1)
    assert "Rank 1 was killed by signal 9 (possibly out of memory)" in outcome["cause"]["message"]
    assert world.processes(attempt_id) == []
    assert sorted(world.checkpoints(job_id)) == [2, 4]
    assert not list((world.run_dir(attempt_id) / "checkpoints").glob(".saving-*"))

    second = world.place(job_id)
    world.agent.look()
    world.wait_until(job_id, State.SUCCEEDED)
    config = RunConfig.model_validate_json((world.run_dir(second) / "config.json").read_bytes())
    assert config.resume is not None
    assert config.resume.checkpoint == world.run_dir(second) / "checkpoints" / "checkpoint-4"
    assert world.steps(job_id)[-2:] == [5, 6]
    assert len(world.steps(job_id)) == 6
    assert sorted(world.checkpoints(job_id)) == [4, 6]


def test_a_damaged_checkpoint_in_storage_is_passed_over(world: World) -> None:
    job_id, _ = world.start(n_processes=2, steps=6, die_at=5)
    world.wait_until(job_id, State.QUEUED)
    newest = world.storage.local_path(world.checkpoints(job_id)[4].storage_prefix)
    (newest / "weights.bin").unlink()
    second = world.place(job_id)
    world.agent.look()
    world.wait_until(job_id, State.SUCCEEDED)
    config = RunConfig.model_validate_json((world.run_dir(second) / "config.json").read_bytes())
    assert config.resume is not None
    assert config.resume.checkpoint.name == "checkpoint-2"


def test_cancel_stops_at_a_step_and_keeps_the_last_checkpoint(world: World) -> None:
    job_id, attempt_id = world.start(n_processes=2, steps=1000, step_s=0.03)
    world.wait_for_step(job_id, 4)
    cancel(world, job_id)
    world.wait_until(job_id, State.CANCELLED, patience_s=5)
    assert world.processes(attempt_id) == []
    assert world.checkpoints(job_id)
    assert world.events(job_id, "stopped")
    assert world.n_taken_devices() == 0


def test_cancel_of_a_deaf_run_with_strayed_children_leaves_no_process(world: World) -> None:
    job_id, attempt_id = world.start(n_processes=2, steps=10_000, is_deaf=True, loaders=1)
    world.wait_for_step(job_id, 2)
    living = world.processes(attempt_id)
    assert len(living) == 5  # launcher, two ranks, two children in sessions of their own
    sessions = {os.getsid(process.pid) for process in living}
    assert len(sessions) == 3
    cancel(world, job_id)
    world.wait_until(job_id, State.CANCELLED, patience_s=10)
    assert not any(process.is_alive() for process in [*living, world.leader(attempt_id)])
    assert world.n_taken_devices() == 0


def test_a_run_that_cannot_be_killed_is_told_of_and_stays_cancelling(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "UNKILLABLE_AFTER_S", 0.5)
    job_id, attempt_id = world.start(steps=10_000, is_deaf=True)
    world.wait_for_step(job_id, 2)
    send([world.supervisor(attempt_id)], signal.SIGKILL)
    plan = read_plan(world.run_dir(attempt_id))
    assert plan is not None
    # Signals that do nothing are what a process that waits in the kernel looks like.
    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.setattr(process, "send", lambda _targets, _number: None)
        done = pool.submit(Supervisor(world.db, world.storage, world.settings, plan).run)
        cancel(world, job_id)
        told = wait_for(lambda: world.events(job_id, "unkillable"), "the event")
        assert world.job(job_id).state == State.CANCELLING
        assert world.n_taken_devices() == 1
        assert set(told[0].data["pids"]) >= {one.pid for one in world.processes(attempt_id)}
        patch.undo()
        assert done.result(10) is not None
    assert world.job(job_id).state == State.CANCELLED


def test_a_doubled_message_launches_once(world: World) -> None:
    job_id = world.submit(steps=100, step_s=0.05)
    world.place(job_id)
    assert sum(world.agent.look() for _ in range(4)) == 1
    world.wait_for_step(job_id, 1)
    assert len(world.events(job_id, "launched")) == 1
    assert len(world.events(job_id, "started")) == 1
    cancel(world, job_id)
    world.wait_until(job_id, State.CANCELLED)


def test_a_fenced_run_is_killed_and_writes_nothing_more(world: World) -> None:
    job_id, attempt_id = world.start(steps=10_000, is_deaf=True)
    world.wait_for_step(job_id, 2)
    leader, supervisor = world.leader(attempt_id), world.supervisor(attempt_id)
    with world.db.session() as session:
        attempts.end(session, attempt_id, attempts.Outcome(result="lost"))
    n_events = len(world.events(job_id))
    wait_for(lambda: not supervisor.is_alive(), "the supervisor to leave")
    assert not leader.is_alive()
    assert world.processes(attempt_id) == []
    assert len(world.events(job_id)) == n_events


def test_a_fenced_run_whose_supervisor_is_dead_is_found_and_killed(world: World) -> None:
    job_id, attempt_id = world.start(steps=10_000, is_deaf=True)
    world.wait_for_step(job_id, 2)
    leader = world.leader(attempt_id)
    send([world.supervisor(attempt_id)], signal.SIGKILL)
    with world.db.session() as session:
        attempts.end(session, attempt_id, attempts.Outcome(result="lost"))
    wait_for(lambda: world.agent.look() + (not leader.is_alive()), "the run to be found")
    wait_for(lambda: not leader.is_alive(), "the run to be killed")
    assert world.job(job_id).state == State.QUEUED


def test_a_launch_without_room_on_the_disk_fails_with_its_cause(world: World) -> None:
    job_id = world.submit()
    attempt_id = world.place(job_id)
    world.agent._settings = world.settings.model_copy(update={"min_free_disk_bytes": 2**60})
    assert world.agent.look() == 0
    outcome = world.attempt(attempt_id).outcome
    assert (outcome["result"], outcome["cause"]["code"]) == ("launch_failed", "disk_full")
    assert world.n_taken_devices() == 0


def test_a_launcher_that_is_not_there_fails_the_launch(world: World) -> None:
    job_id = world.submit()
    attempt_id = world.place(job_id)
    world.agent._launchers = {"torchrun": lambda _launch: ["/nonexistent/torchrun"]}
    world.agent.look()
    wait_for(lambda: world.attempt(attempt_id).outcome, "the outcome")
    outcome = world.attempt(attempt_id).outcome
    assert outcome["result"] == "launch_failed"
    assert "/nonexistent/torchrun" in outcome["cause"]["message"]


def test_a_five_megabyte_line_is_shipped_cut_and_what_follows_it_whole(world: World) -> None:
    job_id, attempt_id = world.start(steps=3, print_bytes=5_000_000)
    supervisor = world.supervisor(attempt_id)
    world.wait_until(job_id, State.SUCCEEDED)
    lines = [line["text"] for line in world.log_lines(job_id) if line["rank"] == 0]
    assert lines[0].endswith("[cut: this line had 5,000,000 bytes]")
    assert len(lines[0]) < 10_000
    assert lines[1:] == ["step 1", "step 2", "step 3"]
    assert world.storage.size(world.artifacts(job_id)["logs/attempt-1/rank0.log"].storage_key) > 5_000_000
    wait_for(lambda: not supervisor.is_alive(), "the supervisor to leave")
