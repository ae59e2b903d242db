"""Any of our processes may die at any moment: the run goes on, or its end is told; nothing is lost or done twice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from api.core import attempts
from api.core.moves import request_cancel
from api.core.states import State
from tests.worker.world import World, wait_for
from worker.process import send


def kill(*processes: object) -> None:
    send(list(processes), signal.SIGKILL)  # type: ignore[arg-type]


def look_until_adopted(world: World, job_id: str) -> None:
    wait_for(lambda: world.agent.look() or world.events(job_id, "adopted"), "a new supervisor")
    wait_for(lambda: world.events(job_id, "adopted"), "the adoption to be told")


def test_a_killed_supervisor_is_followed_by_another_and_the_run_goes_on(both_worlds: World) -> None:
    world = both_worlds
    job_id, attempt_id = world.start(n_processes=2, steps=60, step_s=0.05, save_every=10)
    world.wait_for_step(job_id, 5)
    pids = {one.pid for one in world.processes(attempt_id)}
    kill(world.supervisor(attempt_id))
    look_until_adopted(world, job_id)
    assert {one.pid for one in world.processes(attempt_id)} == pids
    world.wait_until(job_id, State.SUCCEEDED)
    assert world.steps(job_id) == list(range(1, 61))
    texts = [line["text"] for line in world.log_lines(job_id) if line["source"] == "rank0" and line["text"]]
    assert texts == [f"step {step}" for step in range(1, 61)]
    assert world.attempt(attempt_id).outcome["exit_code"] == 0
    assert sorted(world.checkpoints(job_id)) == [50, 60]


def test_a_run_that_ended_while_nobody_watched_is_settled_from_its_files(world: World) -> None:
    job_id, attempt_id = world.start(steps=10, step_s=0.05)
    world.wait_for_step(job_id, 1)
    kill(world.supervisor(attempt_id))
    leader = world.leader(attempt_id)
    wait_for(lambda: not leader.is_alive(), "the run to end by itself")
    assert world.job(job_id).state == State.RUNNING
    look_until_adopted(world, job_id)
    world.wait_until(job_id, State.SUCCEEDED)
    assert world.steps(job_id) == list(range(1, 11))


def test_supervisor_and_run_killed_together_are_queued_again_with_a_reason(world: World) -> None:
    job_id, attempt_id = world.start(n_processes=2, steps=1000, step_s=0.05)
    world.wait_for_step(job_id, 3)
    kill(world.supervisor(attempt_id), world.leader(attempt_id), *world.processes(attempt_id))
    look_until_adopted(world, job_id)
    world.wait_until(job_id, State.QUEUED)
    outcome = world.attempt(attempt_id).outcome
    assert outcome["result"] == "died"
    assert "killed from outside" in outcome["cause"]["message"]
    assert world.n_taken_devices() == 0
    assert max(world.checkpoints(job_id)) >= 2


def test_a_killed_session_leader_takes_the_ranks_with_it(world: World) -> None:
    job_id, attempt_id = world.start(n_processes=2, steps=10_000, is_deaf=True, loaders=1)
    world.wait_for_step(job_id, 2)
    living = world.processes(attempt_id)
    kill(world.leader(attempt_id))
    world.wait_until(job_id, State.QUEUED)
    assert not any(one.is_alive() for one in living)


def test_an_agent_that_died_between_claim_and_launch_is_made_up_for(world: World) -> None:
    job_id = world.submit(steps=3)
    attempt_id = world.place(job_id)
    with world.db.session() as session:
        assert attempts.claim_launch(session, attempt_id)
    assert world.agent.look() == 1
    world.wait_until(job_id, State.SUCCEEDED)


def test_cancel_while_nobody_supervises_is_done_by_the_next_supervisor(world: World) -> None:
    job_id, attempt_id = world.start(n_processes=2, steps=10_000, is_deaf=True)
    world.wait_for_step(job_id, 2)
    kill(world.supervisor(attempt_id))
    living = world.processes(attempt_id)
    with world.db.session() as session:
        request_cancel(session, job_id)
    look_until_adopted(world, job_id)
    world.wait_until(job_id, State.CANCELLED)
    assert not any(one.is_alive() for one in living)


def test_only_one_supervisor_follows_a_run(world: World) -> None:
    job_id, attempt_id = world.start(steps=100, step_s=0.05)
    first = world.supervisor(attempt_id)
    assert [world.agent.look() for _ in range(3)] == [0, 0, 0]
    assert world.supervisor(attempt_id) == first
    world.wait_for_step(job_id, 2)
    with world.db.session() as session:
        request_cancel(session, job_id)
    world.wait_until(job_id, State.CANCELLED)


def test_a_database_that_is_away_neither_ends_the_run_nor_loses_a_word(world: World, data_dir: Path) -> None:
    job_id, attempt_id = world.start(n_processes=2, steps=60, step_s=0.05, save_every=20)
    world.wait_for_step(job_id, 5)
    file = Path(str(world.db.engine.url.database))
    lock = world.db.engine.raw_connection()
    lock.cursor().execute("BEGIN EXCLUSIVE")  # nobody else can write, and after a while every try fails
    leader, supervisor = world.leader(attempt_id), world.supervisor(attempt_id)
    log = world.run_dir(attempt_id) / "supervisor.log"
    try:
        wait_for(lambda: "put off" in log.read_text(), "the supervisor to notice")
        wait_for(lambda: not leader.is_alive(), "the run to go on to its end")
        assert supervisor.is_alive()
    finally:
        lock.cursor().execute("ROLLBACK")
        lock.close()
    assert file.exists()
    world.wait_until(job_id, State.SUCCEEDED)
    assert world.steps(job_id) == list(range(1, 61))
    assert sorted(world.checkpoints(job_id)) == [40, 60]


def test_storage_that_is_away_delays_the_end_and_loses_nothing(world: World) -> None:
    job_id, attempt_id = world.start(steps=20, step_s=0.05, save_every=5)
    world.wait_for_step(job_id, 1)
    root = world.settings.storage_dir
    aside = root.with_name("aside")
    root.rename(aside)
    root.write_text("not a folder")
    leader = world.leader(attempt_id)
    wait_for(lambda: not leader.is_alive(), "the run to end")
    assert world.job(job_id).state == State.RUNNING
    root.unlink()
    aside.rename(root)
    world.wait_until(job_id, State.SUCCEEDED)
    assert sorted(world.checkpoints(job_id)) == [15, 20]


def test_a_run_that_cannot_be_started_fails_the_launch_in_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr("worker.agent.start_leader", refuse)
    monkeypatch.setattr("worker.patience.Backoff.failed", lambda _self: 0.0)
    job_id = world.submit(steps=3)
    attempt_id = world.place(job_id)
    for _ in range(10):
        assert world.agent.look() == 0
    outcome = world.attempt(attempt_id).outcome
    assert outcome["result"] == "launch_failed"
    assert world.n_taken_devices() == 0


def test_a_run_that_died_after_its_last_save_is_finished_by_the_next_attempt(world: World) -> None:
    job_id, attempt_id = world.start(steps=4, exits_silently=True)
    world.wait_until(job_id, State.QUEUED)
    assert "no record says done" in world.attempt(attempt_id).outcome["cause"]["message"]
    world.place(job_id)
    world.agent.look()
    assert world.wait_until(job_id, State.SUCCEEDED, State.FAILED, State.QUEUED).state == State.SUCCEEDED
    assert world.steps(job_id) == [1, 2, 3, 4]
