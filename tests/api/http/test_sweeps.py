"""Sweeps over HTTP: what is refused, and when."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.api.http.conftest import error_of
from tests.conftest import REPOSITORY

Json = dict[str, Any]
RATE = "training.learning_rate"


@pytest.mark.parametrize(
    ("changes", "param", "words"),
    [
        ({"parameters": {"training.learning_rat": {"values": [1]}}}, "parameters.training.learning_rat", "rate"),
        ({"parameters": {"trainin.seed": {"values": [1]}}}, "parameters.trainin.seed", "training"),
        ({"parameters": {"name": {"values": ["a"]}}}, "parameters.name", "same for every trial"),
        ({"parameters": {RATE: {"values": [1e-4, -1]}}}, f"parameters.{RATE}", "-1"),
        ({"parameters": {RATE: {"min": 1e-5, "max": 1e-3}}}, f"parameters.{RATE}", "n_points"),
        ({"parameters": {RATE: {"min": 1, "max": 3}}}, f"parameters.{RATE}", "int"),
        ({"parameters": {RATE: {"min": 0.0, "max": 1.0, "log": True}}}, f"parameters.{RATE}", "over 0"),
        ({"parameters": {RATE: {"min": 0.0, "max": 1.0, "step": 1e-9}}}, f"parameters.{RATE}", "longer `step`"),
        ({"parameters": {RATE: {"values": [1e-4], "min": 1.0}}}, f"parameters.{RATE}", "not both"),
        ({"parameters": {f"training.{name}": {"min": 1, "max": 100, "step": 1} for name in ("seed", "data_seed")}},
         "parameters", "10,000 combinations"),
        ({"objective": {"metric": "eval_los"}}, "objective.metric", "eval_loss"),
        ({"objective": {"metric": "eval_f1_macro"}}, "objective.metric", "eval_perplexity"),
        ({"objective": {"metric": "grad_norm"}}, "objective.direction", "minimize or maximize"),
        ({"search": "random"}, None, "n_trials"),
        ({"serch": "grid"}, "serch", "search"),
        ({"early_stopping": {"min_steps": 27}}, "early_stopping.min_steps", "27"),
        ({"job": {"model": "nobody", "dataset": {"train": "none"}}}, "job.model", "nobody"),
    ],
)  # fmt: skip
def test_a_fault_is_named_at_submit(
    client: TestClient, sweep_body: Callable[..., Json], changes: Json, param: str | None, words: str
) -> None:
    error = error_of(client.post("/v1/sweeps", json=sweep_body(**changes)), 422)
    assert words in str(error)
    assert param is None or error["param"] == param
    assert client.get("/v1/sweeps").json()["data"] == []


def test_a_metric_that_needs_an_evaluation_is_refused_without_one(
    client: TestClient, sweep_body: Callable[..., Json], body: Callable[..., Json]
) -> None:
    sent = sweep_body(job=body(training={"max_steps": 9}))
    assert "needs an evaluation" in error_of(client.post("/v1/sweeps", json=sent), 422)["message"]
    assert client.post("/v1/sweeps", json=sent | {"objective": {"metric": "loss"}}).status_code == 201


def test_a_repeated_request_makes_one_sweep(client: TestClient, sweep_body: Callable[..., Json]) -> None:
    sent, key = sweep_body(), {"Idempotency-Key": "once"}
    first, again = (client.post("/v1/sweeps", json=sent, headers=key) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    other = client.post("/v1/sweeps", json=sent | {"name": "other"}, headers=key)
    assert error_of(other, 422)["code"] == "idempotency_key_reused"


@pytest.mark.parametrize("module", ["api.app", "worker.tasks"])
def test_optuna_is_loaded_by_nobody_who_does_not_search_with_it(module: str) -> None:
    program = f"import sys, {module}; print('optuna' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert loaded.stdout.strip() == "False"


def test_an_unknown_sweep_is_not_found(client: TestClient) -> None:
    for path in ("swp_nothing", "swp_nothing/trials"):
        error_of(client.get(f"/v1/sweeps/{path}"), 404)
    error_of(client.get("/v1/sweeps?after=x"), 422)
