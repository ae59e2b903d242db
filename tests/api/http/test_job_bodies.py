"""What a job's body may hold, and how it is refused: every fault at once, with its path, its value, what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import func, select
from starlette.testclient import TestClient

from api.core.db import Database
from api.core.tables import Job, JobLabel
from tests.api.http.conftest import error_of

Body = Callable[..., dict[str, Any]]
Datasets = Callable[..., str]


def training(**options: Any) -> dict[str, Any]:
    return {"training": options}


# Numbers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "kept"), [("1e-4", 0.0001), ("5e-5", 5e-5), (1e-3, 0.001)])
def test_a_number_written_as_text_is_kept_as_a_number(client: TestClient, body: Body, given: Any, kept: float) -> None:
    job = client.post("/v1/jobs", json=body(**training(learning_rate=given))).json()
    assert job["resolved"]["training"]["learning_rate"] == kept


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("learning_rate", "nan"),
        ("learning_rate", "Infinity"),
        ("learning_rate", True),
        ("learning_rate", -1),
        ("learning_rate", [1]),
        ("num_train_epochs", "auto"),
        ("num_train_epochs", True),
        ("num_train_epochs", 0),
        ("num_train_epochs", -1),
        ("max_steps", 0),
        ("max_steps", -5),
        ("max_steps", 3.7),
        ("per_device_train_batch_size", "1e3"),
        ("per_device_train_batch_size", True),
        ("per_device_train_batch_size", 1000.0),
    ],
)
def test_a_value_that_is_no_number_of_its_kind_is_refused(
    client: TestClient, body: Body, database: Database, option: str, value: Any
) -> None:
    error = error_of(client.post("/v1/jobs", json=body(**training(**{option: value}))), 422)
    assert error["param"] == f"training.{option}"
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(Job)) == 0


@pytest.mark.parametrize(
    ("text", "status", "param"),
    [
        ('{"training": {"learning_rate": NaN}}', 400, "training.learning_rate"),
        ('{"training": {"learning_rate": -Infinity}}', 400, "training.learning_rate"),
        ('{"training": {"learning_rate": 1e400}}', 422, "training.learning_rate"),
        ('{"priority": ' + "9" * 5000 + "}", 422, "priority"),
        ('{"labels": {"a": "\\u0000"}}', 422, "labels.a"),
        ('{"name": "\\ud83d"}', 422, "name"),
        ('{"name": "a", "name": "b"}', 400, None),
        ("[" * 100_000, 400, None),
        ("[" * 40 + "]" * 40, 400, None),
        ("{", 400, None),
        ("", 422, None),
        ("[]", 422, None),
        ("null", 422, None),
        ('"text"', 422, None),
    ],
)
def test_json_that_nobody_can_keep_is_refused(client: TestClient, text: str, status: int, param: str | None) -> None:
    answer = client.post("/v1/jobs", content=text, headers={"Content-Type": "application/json"})
    assert error_of(answer, status)["param"] == param


def test_bytes_that_are_not_utf_8_are_refused(client: TestClient) -> None:
    answer = client.post("/v1/jobs", content=b'{"name": "\xff"}', headers={"Content-Type": "application/json"})
    assert error_of(answer, 400)["code"] == "json_invalid"


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "application/xml", "nonsense"])
def test_a_body_of_another_kind_is_refused(client: TestClient, kind: str) -> None:
    error_of(client.post("/v1/jobs", content=b'{"model": "tiny"}', headers={"Content-Type": kind}), 422)


# Unknown keys --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "param", "near"),
    [
        ({"modle": "tiny"}, "modle", "model"),
        ({"training": {"lerning_rate": 0.1}}, "training.lerning_rate", "learning_rate"),
        ({"adapter": {"type": "lora", "alhpa": 1}}, "adapter.alhpa", "lora_alpha"),
        ({"parallel": {"n_proceses": 2}}, "parallel.n_proceses", "n_processes"),
        (
            {"parallel": {"strategy": "deepspeed", "deepspeed": {"zero_optimisation": {"stage": 2}}}},
            "parallel.deepspeed.zero_optimisation",
            "zero_optimization",
        ),
        ({"continue_from": {"job": "x", "checkpont": "best"}}, "continue_from.checkpont", "checkpoint"),
    ],
)
def test_an_unknown_key_is_refused_with_its_path_and_the_nearest_name(
    client: TestClient, body: Body, change: dict[str, Any], param: str, near: str
) -> None:
    error = error_of(client.post("/v1/jobs", json=body(**change)), 422)
    fault = next(one for one in error["details"] if one["param"] == param)
    assert fault["code"] == "unknown_key"
    assert near in fault["hint"]


def test_an_unknown_key_of_the_columns_is_refused(client: TestClient, dataset: Datasets) -> None:
    sent = {"model": "tiny", "dataset": {"train": dataset(), "columns": {"promt": "question"}}}
    error = error_of(client.post("/v1/jobs", json=sent), 422)
    assert (error["param"], error["code"]) == ("dataset.columns.promt", "unknown_key")
    assert "prompt" in error["message"]


def test_a_name_of_an_older_release_is_translated_or_refused(client: TestClient, body: Body) -> None:
    sent = body(**training(evaluation_strategy="steps", eval_steps=10))
    sent["dataset"]["eval_fraction"] = 0.1
    answer = client.post("/v1/jobs", json=sent)
    assert answer.status_code == 201, answer.text
    assert answer.json()["resolved"]["training"]["eval_strategy"] == "steps"
    assert "evaluation_strategy" in " ".join(answer.json()["resolved"]["notes"])


def test_every_fault_is_named_at_once_in_the_order_of_the_body(client: TestClient) -> None:
    sent = {
        "model": "tinny",
        "dataset": {"train": "nowhere.jsonl"},
        "training": {"learning_rate": "fast", "max_steps": 0},
        "parallel": {"strategy": "ddp", "zero_stage": 3},
    }
    error = error_of(client.post("/v1/jobs", json=sent), 422)
    params = [fault["param"] for fault in error["details"]]
    assert params == ["model", "dataset.train", "training.learning_rate", "training.max_steps", "parallel.zero_stage"]
    assert (error["param"], error["code"]) == ("model", "not_found")
    assert "tiny" in error["details"][0]["message"]


def test_the_nearest_dataset_is_named(client: TestClient, body: Body, dataset: Datasets) -> None:
    dataset(name="tickets.jsonl")
    error = error_of(client.post("/v1/jobs", json=body(dataset={"train": "ticket.jsonl"})), 422)
    assert error["param"] == "dataset.train"
    assert "tickets.jsonl" in error["message"]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"name": "a\nb"}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": " "}, "name"),
        ({"labels": {str(n): "" for n in range(65)}}, "labels"),
        ({"labels": {"k" * 65: "v"}}, None),
        ({"labels": {"k": "v" * 513}}, "labels.k"),
        ({"labels": {"k": 1}}, "labels.k"),
        ({"priority": 1001}, "priority"),
        ({"priority": True}, "priority"),
        ({"notes": "\u0007"}, "notes"),
        ({"method": "sfT"}, "method"),
        ({"parallel": {"n_processes": 0}}, "parallel.n_processes"),
        ({"parallel": {"zero_stage": 4}}, "parallel.zero_stage"),
        ({"adapter": {"r": 0}}, "adapter.r"),
    ],
)
def test_a_bad_value_is_refused_with_its_path(
    client: TestClient, body: Body, change: dict[str, Any], param: str | None
) -> None:
    error = error_of(client.post("/v1/jobs", json=body(**change)), 422)
    if param is not None:
        assert error["param"] == param


# Evaluation and saving -----------------------------------------------------------------------------------------------


def test_cadences_that_never_meet_are_made_to_and_it_is_said(client: TestClient, body: Body) -> None:
    sent = body(**training(eval_steps=2, save_steps=3))
    sent["dataset"]["eval_fraction"] = 0.2
    answer = client.post("/v1/jobs", json=sent)
    assert answer.status_code == 201, answer.text


def test_a_metric_that_is_never_computed_is_refused(client: TestClient, body: Body) -> None:
    sent = body(**training(metric_for_best_model="f1"))
    sent["dataset"]["eval_fraction"] = 0.2
    error = error_of(client.post("/v1/jobs", json=sent), 422)
    assert error["param"] == "training.metric_for_best_model"
    assert "eval_loss" in error["message"]


def test_evaluation_without_rows_is_refused(client: TestClient, body: Body, dataset: Datasets) -> None:
    error = error_of(client.post("/v1/jobs", json=body(**training(eval_strategy="steps"))), 422)
    assert error["param"] == "training.eval_strategy"
    empty = dataset(n_rows=0, name="empty.jsonl")
    error = error_of(
        client.post("/v1/jobs", json={"model": "tiny", "dataset": {"train": dataset(), "eval": empty}}), 422
    )
    assert error["param"] == "dataset.eval"


def test_two_ways_to_evaluate_are_one_too_many(client: TestClient, dataset: Datasets) -> None:
    sent = {"model": "tiny", "dataset": {"train": dataset(), "eval": dataset(), "eval_fraction": 0.1}}
    error = error_of(client.post("/v1/jobs", json=sent), 422)
    assert error["param"] == "dataset"
    assert "eval_fraction" in error["message"]


# Steps ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_rows", "options", "steps"),
    [
        (8, {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 64, "num_train_epochs": 1}, 1),
        (3, {"per_device_train_batch_size": 4, "num_train_epochs": 1}, 1),
        (100, {"max_steps": 7}, 7),
        (100, {"max_steps": -1, "num_train_epochs": 1}, 25),
    ],
)
def test_planned_steps_are_computed_and_kept(
    client: TestClient, dataset: Datasets, n_rows: int, options: dict[str, Any], steps: int
) -> None:
    sent = {"model": "tiny", "dataset": {"train": dataset(n_rows=n_rows)}, "training": options}
    assert client.post("/v1/jobs", json=sent).json()["planned_steps"] == steps


@pytest.mark.parametrize(
    ("n_rows", "options", "param"),
    [
        (3, {"per_device_train_batch_size": 4, "dataloader_drop_last": True}, "training.dataloader_drop_last"),
        (100, {"max_steps": 4, "warmup_steps": 1000}, "training.warmup_steps"),
        (16, {"num_train_epochs": 1, "warmup_steps": 1000}, "training.warmup_steps"),
        (0, {}, "dataset.train"),
        (100, {"num_train_epochs": 1e308}, "training.num_train_epochs"),
        (100, {"num_train_epochs": 2**63 - 1}, "training.num_train_epochs"),
        (100, {"max_steps": 2**62}, "training.max_steps"),
    ],
)
def test_a_run_that_would_do_nothing_or_never_end_is_refused(
    client: TestClient, dataset: Datasets, n_rows: int, options: dict[str, Any], param: str
) -> None:
    sent = {"model": "tiny", "dataset": {"train": dataset(n_rows=n_rows)}, "training": options}
    assert error_of(client.post("/v1/jobs", json=sent), 422)["param"] == param


# DeepSpeed -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "block", "shown"),
    [
        ({"gradient_accumulation_steps": 8}, {"gradient_accumulation_steps": "4"}, ("8", "4")),
        ({"learning_rate": 1e-4}, {"optimizer": {"type": "AdamW", "params": {"lr": 5e-5}}}, ("0.0001", "5e-05")),
        ({}, {"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 0}}}, ("0",)),
        ({"bf16": False}, {"bf16": {"enabled": True}}, ("bf16",)),
    ],
)
def test_a_deepspeed_block_that_clashes_with_the_job_is_refused_with_both_values(
    client: TestClient, body: Body, options: dict[str, Any], block: dict[str, Any], shown: tuple[str, ...]
) -> None:
    sent = body(training=options, parallel={"strategy": "deepspeed", "n_processes": 2, "deepspeed": block})
    error = error_of(client.post("/v1/jobs", json=sent), 422)
    assert error["param"].startswith("parallel.deepspeed.")
    for value in shown:
        assert value in error["message"]


def test_auto_means_deepspeed_once_anything_of_it_is_asked(client: TestClient, body: Body) -> None:
    plain = client.post("/v1/jobs", json=body(parallel={"n_processes": 2})).json()["resolved"]
    assert plain["parallel"]["strategy"] == "ddp"
    assert plain["deepspeed"] is None
    asked = client.post("/v1/jobs", json=body(parallel={"n_processes": 2, "zero_stage": 3})).json()["resolved"]
    assert asked["parallel"]["strategy"] == "deepspeed"
    assert asked["deepspeed"]["zero_optimization"]["stage"] == 3
    assert asked["deepspeed"]["train_batch_size"] == 8


# Columns and labels --------------------------------------------------------------------------------------------------


def test_a_files_own_columns_are_mapped(client: TestClient, dataset: Datasets) -> None:
    train = dataset(format="columns", columns=("question", "answer"))
    error = error_of(client.post("/v1/jobs", json={"model": "tiny", "dataset": {"train": train}}), 422)
    assert error["code"] == "columns_needed"
    mapped = {"train": train, "columns": {"prompt": "question", "completion": "anwser"}}
    error = error_of(client.post("/v1/jobs", json={"model": "tiny", "dataset": mapped}), 422)
    assert error["param"] == "dataset.columns.completion"
    assert "answer" in error["message"]
    mapped["columns"] = {"prompt": "question", "completion": "answer"}
    job = client.post("/v1/jobs", json={"model": "tiny", "dataset": mapped}).json()
    assert job["resolved"]["data"]["format"] == "prompt_completion"


def test_labels_are_kept_one_a_row(client: TestClient, body: Body, database: Database) -> None:
    labels = {f"k{n}": "v" * 512 for n in range(64)}
    assert client.post("/v1/jobs", json=body(labels=labels)).json()["labels"] == labels
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(JobLabel)) == 64
