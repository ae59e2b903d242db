"""Runs that are asked to leave at a checkpoint (pause, drain, time limit), and go on from it."""

from __future__ import annotations

from typing import Any

from api.core import attempts
from api.core.moves import request_cancel
from api.core.states import State
from api.core.tables import Job
from api.core.wishes import request_leave, request_pause, request_resume
from tests.worker.world import World, wait_for
from trainer_core.contract import RunConfig

FAST: dict[str, Any] = {"steps": 60, "step_s": 0.03, "save_every": 1000}


def pause(world: World, job_id: str, attempt_id: str) -> None:
    """As the service does it: the wish, and the nudge that has the supervisor ask at once."""
    with world.db.session() as session:
        request_pause(session, job_id, "ann")
    world.agent.ask_now(attempt_id)


def go_on(world: World, job_id: str) -> int:
    """The job's next attempt, to its end; returns the step that it resumed from."""
    attempt_id = world.place(job_id)
    world.agent.look()
    world.wait_until(job_id, State.SUCCEEDED)
    config = RunConfig.model_validate_json((world.run_dir(attempt_id) / "config.json").read_bytes())
    assert config.resume is not None
    return int(config.resume.checkpoint.name.removeprefix("checkpoint-"))


def test_a_paused_run_goes_on_from_where_it_stopped(both_worlds: World) -> None:
    world = both_worlds
    job_id, attempt_id = world.start(n_processes=2, **FAST)
    world.wait_for_step(job_id, 3)
    pause(world, job_id, attempt_id)
    paused = world.wait_until(job_id, State.PAUSED)
    assert world.processes(attempt_id) == []
    assert world.n_taken_devices() == 0
    [saved] = world.checkpoints(job_id)
    assert saved == paused.step >= 3
    assert world.events(job_id, "paused")[-1].message == f"Paused; it will go on from step {saved}"
    with world.db.session() as session:
        request_resume(session, job_id, "ann")
    assert go_on(world, job_id) == saved
    assert world.steps(job_id) == list(range(1, 61)), "no step is missing, none is counted twice"


def test_a_drained_run_goes_on_in_the_next_attempt_for_free(world: World) -> None:
    job_id, attempt_id = world.start(**FAST)
    world.wait_for_step(job_id, 3)
    with world.db.session() as session:
        assert request_leave(session, job_id, "drain", "node1 is drained")
    world.agent.ask_now(attempt_id)
    left = world.wait_until(job_id, State.QUEUED)
    assert (left.n_failures, left.not_before) == (0, None)
    assert go_on(world, job_id) == left.step


def test_a_run_at_its_time_limit_leaves_a_checkpoint_and_fails(world: World) -> None:
    job_id = world.submit(steps=10_000, step_s=0.03, save_every=10_000)
    with world.db.session() as session:
        session.get_one(Job, job_id).time_limit_s = 1
    attempt_id = world.place(job_id)
    world.agent.look()
    job = world.wait_until(job_id, State.FAILED)
    assert job.cause is not None
    assert job.cause["code"] == "timeout"
    assert list(world.checkpoints(job_id)) == [job.step]
    assert world.processes(attempt_id) == []


def test_a_cancel_does_not_wait_for_the_checkpoint_of_a_pause(world: World) -> None:
    job_id, attempt_id = world.start(steps=10_000, is_deaf=True)
    world.wait_for_step(job_id, 2)
    pause(world, job_id, attempt_id)
    wait_for(lambda: (world.run_dir(attempt_id) / "STOP").exists(), "the wish to reach the run")
    with world.db.session() as session:
        assert request_cancel(session, job_id, "ann").state == State.CANCELLING
    world.agent.ask_now(attempt_id)
    world.wait_until(job_id, State.CANCELLED)  # the pause alone would have been given ten minutes
    assert world.processes(attempt_id) == []


def test_a_run_preempted_before_it_spoke_is_queued_again(world: World) -> None:
    job_id, attempt_id = world.start(steps=10_000, step_s=0.03)
    with world.db.session() as session:
        assert attempts.request_preempt(session, job_id, "others")
    world.wait_until(job_id, State.QUEUED)
    assert world.processes(attempt_id) == []
    assert world.job(job_id).stop is None
