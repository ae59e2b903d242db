"""Fine-tuning jobs by the official client, answers checked strictly, jobs moved by the core."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import openai
import pytest
from sqlalchemy import select

from api.core.auth import add_key
from api.core.db import now
from api.core.openai_tables import FineTuneCreate
from api.core.states import State
from api.core.tables import Job
from api.openai import names
from tests.api.openai import runs
from tests.api.openai.conftest import Service, rows

Create = Callable[..., Any]


def own_id(job: Any) -> str:
    return names.job_id(job.id)


def row_of(service: Service, job: Any) -> Job:
    with service.database.reading() as session:
        return session.get_one(Job, own_id(job))


def test_a_job_from_its_making_to_its_end(client: openai.OpenAI, service: Service, create: Create, train: str) -> None:
    valid = client.files.create(file=("valid.jsonl", rows(5)), purpose="fine-tune").id
    job = create(validation_file=valid, suffix="My model!", seed=7, metadata={"team": "a"})
    assert job.object == "fine_tuning.job"
    assert (job.status, job.phase) == ("validating_files", "validating")
    assert (job.error, job.fine_tuned_model, job.finished_at, job.trained_tokens) == (None, None, None, None)
    assert (job.training_file, job.validation_file, job.seed, job.metadata) == (train, valid, 7, {"team": "a"})
    assert job.result_files == []

    runs.queue_it(service.database, own_id(job), trained_tokens=1000)
    assert client.fine_tuning.jobs.retrieve(job.id).status == "queued"
    attempt = runs.start(service.database, own_id(job))
    runs.train(service.database, attempt, 10)
    running = client.fine_tuning.jobs.retrieve(job.id)
    assert (running.status, running.phase) == ("running", "training")
    runs.finish(service.database, service.storage, own_id(job), attempt)

    done = client.fine_tuning.jobs.retrieve(job.id)
    assert (done.status, done.error, done.trained_tokens) == ("succeeded", None, 3000)
    assert done.finished_at is not None
    assert done.fine_tuned_model == f"ft:org/tiny:trainyard:My-model:{job.id.removeprefix('ftjob-')}"
    assert client.models.retrieve(done.fine_tuned_model).id == done.fine_tuned_model
    [result] = done.result_files
    lines = client.files.content(result).text.splitlines()
    assert lines[0] == "step,train_loss,train_accuracy,valid_loss,valid_mean_token_accuracy"
    assert lines[1] == "1,2.0,,,"
    assert lines[-1] == "10,0.2,,0.5,"
    assert len(lines) == 11
    file = client.files.retrieve(result)
    assert (file.purpose, file.bytes) == ("fine-tune-results", len("\n".join(lines)) + 1)
    assert [one.id for one in client.files.list(purpose="fine-tune-results")] == [result]
    assert {one.id for one in client.files.list(limit=1)} == {train, valid, result}


def test_the_estimate_of_the_finish_lies_ahead(client: openai.OpenAI, service: Service, create: Create) -> None:
    job = create()
    runs.queue_it(service.database, own_id(job))
    attempt = runs.start(service.database, own_id(job))
    runs.train(service.database, attempt, 5, since=now() - timedelta(seconds=5))
    found = client.fine_tuning.jobs.retrieve(job.id).estimated_finish
    assert found is not None
    assert 0 <= found - now().timestamp() + 1 < 60


def test_a_failure_is_told(client: openai.OpenAI, service: Service, create: Create) -> None:
    job = create()
    runs.queue_it(service.database, own_id(job))
    runs.fail(service.database, runs.start(service.database, own_id(job)))
    failed = client.fine_tuning.jobs.retrieve(job.id)
    assert failed.status == "failed"
    assert failed.error is not None
    assert (failed.error.code, failed.error.param) == ("data_invalid", "dataset.train")
    assert failed.error.message == "row 3 is no row Mend it."


# Hyperparameters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["method", "hyperparameters"])
def test_hyperparameters_by_value(service: Service, create: Create, how: str) -> None:
    hyper = {"n_epochs": 2, "batch_size": 12, "learning_rate_multiplier": 0.5}
    method = {"type": "supervised", "supervised": {"hyperparameters": hyper}}
    job = create(**({"method": method} if how == "method" else {"hyperparameters": hyper}))
    training = row_of(service, job).resolved["training"]
    assert (training["num_train_epochs"], training["learning_rate"]) == (2, 1e-4)
    assert (training["per_device_train_batch_size"], training["gradient_accumulation_steps"]) == (6, 2)
    shown = job.hyperparameters
    assert (shown.n_epochs, shown.batch_size, shown.learning_rate_multiplier) == (2, 12, 0.5)
    assert job.method.supervised.hyperparameters.batch_size == 12


def test_auto_takes_the_services_own_defaults(service: Service, create: Create) -> None:
    auto = {"n_epochs": "auto", "batch_size": "auto", "learning_rate_multiplier": "auto"}
    job = create(method={"type": "supervised", "supervised": {"hyperparameters": auto}})
    row = row_of(service, job)
    assert row.resolved["adapter"]["type"] == "lora"
    assert row.resolved["training"]["learning_rate"] == 2e-4
    assert (job.hyperparameters.learning_rate_multiplier, job.hyperparameters.n_epochs) == (1.0, 3)


def test_the_base_rate_of_full_weights_is_lower(service: Service, create: Create) -> None:
    job = create(hyperparameters={"learning_rate_multiplier": 2}, extra_body={"adapter": None})
    row = row_of(service, job)
    assert (row.resolved["adapter"], row.resolved["training"]["learning_rate"]) == (None, 4e-5)
    assert job.hyperparameters.learning_rate_multiplier == 2


def test_own_options_go_beside(service: Service, create: Create) -> None:
    own = {
        "adapter": {"type": "lora", "r": 4},
        "parallel": {"n_processes": 2, "strategy": "deepspeed", "zero_stage": 2},
        "training": {"learning_rate": 3e-5, "max_steps": 9},
        "dataset": {"max_length": 128, "eval_fraction": 0.25},
    }
    job = create(hyperparameters={"batch_size": 8}, extra_body=own)
    resolved = row_of(service, job).resolved
    assert (resolved["adapter"]["r"], resolved["parallel"]["n_processes"], resolved["global_batch_size"]) == (4, 2, 8)
    assert (resolved["data"]["max_length"], resolved["planned_steps"]) == (128, 9)
    assert job.hyperparameters.n_epochs is None


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"hyperparameters": {"n_epochs": 51}}, "hyperparameters.n_epochs"),
        ({"hyperparameters": {"batch_size": 0}}, "hyperparameters.batch_size"),
        ({"hyperparameters": {"learning_rate_multiplier": 0}}, "hyperparameters.learning_rate_multiplier"),
        ({"hyperparameters": {"epochs": 3}}, "hyperparameters.epochs"),
        (
            {"hyperparameters": {"batch_size": 3}, "extra_body": {"parallel": {"n_processes": 2}}},
            "hyperparameters.batch_size",
        ),
        (
            {"hyperparameters": {"n_epochs": 3}, "extra_body": {"training": {"num_train_epochs": 2}}},
            "training.num_train_epochs",
        ),
        ({"suffix": "s" * 65}, "suffix"),
        ({"seed": -1}, "seed"),
        ({"metadata": {f"k{n}": "v" for n in range(17)}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata.k"),
        ({"integrations": [{"type": "wandb", "wandb": {"project": "p"}}]}, "integrations"),
        ({"model": "no-such-model"}, "model"),
        ({"training_file": "file-nothing"}, "training_file"),
        ({"validation_file": "file-nothing"}, "validation_file"),
        ({"extra_body": {"adapter": {"type": "lora", "rank": 4}}}, "adapter.rank"),
        ({"extra_body": {"training": {"learning_rat": 4}}}, "training.learning_rat"),
        ({"extra_body": {"unknown": 4}}, "unknown"),
    ],
)
def test_a_bad_body_is_a_400_with_the_field(create: Create, changes: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        create(**changes)
    assert caught.value.type == "invalid_request_error"
    assert caught.value.param == param
    if param == "model":
        assert caught.value.code == "model_not_found"


def test_a_method_that_is_not_there_is_refused_by_name(create: Create, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.openai.bodies.offered", lambda: ("sft",))
    grader = {"type": "string_check", "name": "n", "input": "i", "operation": "eq", "reference": "r"}
    for method in ({"type": "dpo"}, {"type": "reinforcement", "reinforcement": {"grader": grader}}):
        with pytest.raises(openai.BadRequestError) as caught:
            create(method=method)
        assert (caught.value.code, caught.value.param) == ("unsupported_method", "method")
        assert "supervised" in caught.value.message


# Sent twice ----------------------------------------------------------------------------------------------------------


def test_a_body_sent_twice_makes_one_job(client: openai.OpenAI, create: Create) -> None:
    first, again, other = create(suffix="a"), create(suffix="a"), create(suffix="b")
    assert first.id == again.id != other.id
    assert len(list(client.fine_tuning.jobs.list())) == 2


def test_another_key_makes_a_job_of_its_own(service: Service, create: Create, train: str) -> None:
    first = create()
    with service.database.session() as session:
        _, key = add_key(session, "other")
    with service.client(key) as other:
        assert other.fine_tuning.jobs.create(model="org/tiny", training_file=train).id != first.id


def test_after_ten_minutes_or_its_end_it_is_meant(client: openai.OpenAI, service: Service, create: Create) -> None:
    first = create()
    client.fine_tuning.jobs.cancel(first.id)
    second = create()
    assert second.id != first.id
    with service.database.session() as session:
        session.scalars(select(FineTuneCreate)).one().created_at = now() - timedelta(minutes=11)
    third = create()
    assert third.id != second.id


def test_a_retry_gets_the_job_even_when_it_is_over(client: openai.OpenAI, create: Create) -> None:
    first = create()
    client.fine_tuning.jobs.cancel(first.id)
    assert create(extra_headers={"x-stainless-retry-count": "1"}).id == first.id


def test_an_idempotency_key_decides_alone(create: Create) -> None:
    first = create(extra_headers={"Idempotency-Key": "one"})
    assert create(extra_headers={"Idempotency-Key": "one"}).id == first.id
    assert create(extra_headers={"Idempotency-Key": "two"}).id != first.id
    with pytest.raises(openai.BadRequestError) as caught:
        create(seed=5, extra_headers={"Idempotency-Key": "one"})
    assert caught.value.code == "idempotency_key_reused"


# Lists ---------------------------------------------------------------------------------------------------------------


def test_all_of_45_jobs_are_paged_through_once(client: openai.OpenAI, create: Create) -> None:
    made = [create(seed=n, metadata={"parity": str(n % 2)} if n else None).id for n in range(45)]
    assert [job.id for job in client.fine_tuning.jobs.list()] == made[::-1]
    assert [job.id for job in client.fine_tuning.jobs.list(limit=7)] == made[::-1]
    odd = client.fine_tuning.jobs.list(limit=5, metadata={"parity": "1"})
    assert [job.id for job in odd] == made[::-1][1::2]
    assert list(client.fine_tuning.jobs.list(metadata={"parity": "1", "other": "x"})) == []
    bare = client.fine_tuning.jobs.list(extra_query={"metadata": "null"})
    assert [job.id for job in bare] == [made[0]]
    page = client.fine_tuning.jobs.list(limit=45)
    assert page.has_more is False


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": 100_000}, {"after": "ftjob-nothing"}, {"extra_query": {"metadata": "x"}}]
)
def test_a_bad_query_of_a_list_is_refused(client: openai.OpenAI, query: Any) -> None:
    with pytest.raises(openai.BadRequestError):
        client.fine_tuning.jobs.list(**query)


def test_events_are_paged_newest_first_with_figures(client: openai.OpenAI, service: Service, create: Create) -> None:
    job = create()
    runs.succeed(service.database, service.storage, own_id(job))
    found = list(client.fine_tuning.jobs.list_events(job.id, limit=3))
    assert [event.id for event in found] == [e.id for e in client.fine_tuning.jobs.list_events(job.id, limit=1000)]
    assert len({event.id for event in found}) == len(found)
    row = row_of(service, job)
    assert len(found) == row.last_event_n + row.last_metric_n
    figures = [event for event in found if event.type == "metrics"]
    assert [event.data["step"] for event in figures] == [10, *range(10, 0, -1)]  # type: ignore[index]
    assert figures[-1].message == "Step 1: train loss=2"
    words = [event.message for event in found if event.type == "message"]
    assert words[-1].startswith("Created")
    with pytest.raises(openai.BadRequestError):
        client.fine_tuning.jobs.list_events(job.id, after="ftevent-nothing")


def test_checkpoints_are_paged_and_can_be_named(client: openai.OpenAI, service: Service, create: Create) -> None:
    job = create(suffix="mine")
    runs.succeed(service.database, service.storage, own_id(job))
    found = list(client.fine_tuning.jobs.checkpoints.list(job.id, limit=1))
    assert [one.step_number for one in found] == [10, 5]
    tail = job.id.removeprefix("ftjob-")
    assert found[1].fine_tuned_model_checkpoint == f"ft:org/tiny:trainyard:mine:{tail}:ckpt-step-5"
    assert (found[0].metrics.train_loss, found[0].metrics.full_valid_loss) == (0.5, None)
    page = client.fine_tuning.jobs.checkpoints.list(job.id)
    assert (page.has_more, page.first_id, page.last_id) == (False, found[0].id, found[1].id)  # type: ignore[attr-defined]
    assert client.models.retrieve(found[1].fine_tuned_model_checkpoint).owned_by == "trainyard"


# Cancel, pause, resume -----------------------------------------------------------------------------------------------


def test_cancelling_twice_is_a_400_and_not_retried(client: openai.OpenAI, create: Create) -> None:
    job = create()
    cancelled = client.fine_tuning.jobs.cancel(job.id)
    assert (cancelled.status, cancelled.error) == ("cancelled", None)
    with pytest.raises(openai.BadRequestError) as caught:
        client.fine_tuning.jobs.cancel(job.id)
    assert caught.value.code == "already_finished"


def test_a_run_is_running_until_it_is_gone(client: openai.OpenAI, service: Service, create: Create) -> None:
    job = create()
    runs.queue_it(service.database, own_id(job))
    runs.start(service.database, own_id(job))
    asked = client.fine_tuning.jobs.cancel(job.id)
    assert (asked.status, asked.state) == ("running", "cancelling")  # type: ignore[attr-defined]


def test_pause_and_resume(client: openai.OpenAI, service: Service, create: Create) -> None:
    job = create()
    with pytest.raises(openai.BadRequestError):
        client.fine_tuning.jobs.pause(job.id)
    runs.queue_it(service.database, own_id(job))
    paused = client.fine_tuning.jobs.pause(job.id)
    assert (paused.status, paused.phase) == ("queued", "paused")  # type: ignore[attr-defined]
    assert row_of(service, job).state == State.PAUSED
    resumed = client.fine_tuning.jobs.resume(job.id)
    assert (resumed.status, resumed.phase) == ("queued", "queued")  # type: ignore[attr-defined]
    client.fine_tuning.jobs.cancel(job.id)
    with pytest.raises(openai.BadRequestError):
        client.fine_tuning.jobs.resume(job.id)


# Models --------------------------------------------------------------------------------------------------------------


def test_models_are_listed_used_and_deleted(client: openai.OpenAI, service: Service, create: Create) -> None:
    job = create()
    runs.succeed(service.database, service.storage, own_id(job))
    name = client.fine_tuning.jobs.retrieve(job.id).fine_tuned_model
    assert name is not None
    assert [model.id for model in client.models.list()] == ["org/tiny", name]
    assert client.models.retrieve("org/tiny").id == "org/tiny"

    child = create(model=f"{name}:ckpt-step-5")
    assert child.model == "org/tiny"
    start = row_of(service, child).resolved["start"]
    assert (start["job_id"], start["step"], start["mode"]) == (own_id(job), 5, "weights")
    with pytest.raises(openai.BadRequestError) as caught:
        client.models.delete(name)
    assert caught.value.code == "model_in_use"
    client.fine_tuning.jobs.cancel(child.id)

    assert client.models.delete(f"{name}:ckpt-step-5").deleted
    assert [one.step_number for one in client.fine_tuning.jobs.checkpoints.list(job.id)] == [10]
    assert client.models.delete(name).deleted
    assert list(service.storage.list(f"jobs/{own_id(job)}/checkpoints")) == []
    for gone in (name, f"{name}:ckpt-step-10", name.replace("tiny", "tony"), "nothing"):
        with pytest.raises(openai.NotFoundError) as missing:
            client.models.retrieve(gone)
        assert missing.value.code == "model_not_found"
    assert client.fine_tuning.jobs.retrieve(job.id).fine_tuned_model is None
    assert client.models.delete("org/tiny").deleted
