"""A run that has no room on its devices is tried again with what needs less, rung by rung, as far as the job allows."""

from __future__ import annotations

from typing import Any

from sqlalchemy import update

from api.core.specs import Resolved
from api.core.states import State
from api.core.tables import Job
from tests.worker.world import World, wait_for


def submit(
    world: World, n_processes: int = 1, batch: int = 8, parallel: dict[str, Any] | None = None, **fake: Any
) -> str:
    job_id = world.submit(n_processes, **fake)
    with world.db.session() as session:
        resolved = Resolved.model_validate(session.get_one(Job, job_id).resolved)
        training = {**resolved.training, "per_device_train_batch_size": batch, "gradient_accumulation_steps": 1}
        spread = resolved.parallel.model_copy(update=parallel or {})
        resolved = resolved.model_copy(update={"training": training, "parallel": spread})
        session.execute(update(Job).where(Job.id == job_id).values(resolved=resolved.model_dump(mode="json")))
    return job_id


def run_to_the_end(world: World, job_id: str) -> Job:
    while True:
        attempt_id = world.place(job_id)
        world.agent.look()
        wait_for(lambda attempt_id=attempt_id: world.attempt(attempt_id).outcome, "the attempt to end")
        if world.job(job_id).state != State.QUEUED:
            return world.job(job_id)


def test_micro_batches_are_halved_until_they_fit_and_the_run_goes_on(both_worlds: World) -> None:
    world = both_worlds
    job_id = submit(world, batch=8, steps=4, oom_above=2)
    job = run_to_the_end(world, job_id)
    assert (job.state, job.attempt, job.faults) == (State.SUCCEEDED, 3, {})
    training = job.resolved["training"]
    assert (training["per_device_train_batch_size"], training["gradient_accumulation_steps"]) == (2, 4)
    told = world.events(job_id, "adapted")
    assert [event.data["rung"] for event in told] == ["micro_batch", "micro_batch"]
    assert told[0].data["changes"][0] == {"param": "training.per_device_train_batch_size", "old": 8, "new": 4}
    assert "per_device_train_batch_size 8 -> 4" in told[0].message
    assert any("After running out of memory" in note for note in job.resolved["notes"])


def test_another_stage_begins_anew_as_saved_states_do_not_fit_it(world: World) -> None:
    job_id = submit(world, n_processes=2, batch=1, steps=6, save_every=2, oom_below_zero=2)
    job = run_to_the_end(world, job_id)
    assert job.state == State.SUCCEEDED
    assert [event.data["rung"] for event in world.events(job_id, "adapted")] == ["activation_checkpointing", "zero_2"]
    starts = [event.data.get("resumed_from_step") for event in world.events(job_id, "started")]
    assert starts == [None, 2, None]
    assert job.resolved["parallel"]["zero_stage"] == 2
    assert job.resolved["deepspeed"]["zero_optimization"]["stage"] == 2
    assert world.steps(job_id) == [1, 2, 3, 4, 5, 6]


def test_a_job_may_forbid_it(world: World) -> None:
    job_id = submit(world, batch=8, steps=4, oom_above=2, parallel={"on_out_of_memory": "fail"})
    job = run_to_the_end(world, job_id)
    assert (job.state, job.attempt) == (State.FAILED, 1)
    assert job.cause is not None
    assert job.cause["code"] == "gpu_oom"
    assert world.events(job_id, "adapted") == []


def test_at_the_foot_of_the_ladder_the_job_fails(world: World) -> None:
    job_id = submit(world, batch=2, steps=4, oom_above=0)
    job = run_to_the_end(world, job_id)
    assert (job.state, job.attempt) == (State.FAILED, 3)
    assert [event.data["rung"] for event in world.events(job_id, "adapted")] == [
        "micro_batch",
        "activation_checkpointing",
    ]
