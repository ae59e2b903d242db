"""Jobs of every method: their rows' format, their own block, the figures and options that each allows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.api.http.conftest import error_of

Datasets = Callable[..., str]


@pytest.fixture
def reviews(dataset: Datasets) -> str:
    return dataset(name="reviews", format="classification", columns=("text", "label"))


def body(method: str, train: str, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "method": method, "dataset": {"train": train, "eval_fraction": 0.1}, **more}


def test_a_classifier_is_resolved_with_its_block(client: TestClient, reviews: str) -> None:
    options = {"class_weights": {"spam": "2"}}
    training = {"metric_for_best_model": "f1_macro"}
    sent = body("classification", reviews, classification=options, training=training)
    job = client.post("/v1/jobs", json=sent).json()
    resolved = job["resolved"]
    assert (resolved["method"], resolved["data"]["format"]) == ("classification", "classification")
    assert resolved["classification"] == {"problem": "auto", "class_weights": {"spam": 2.0}}
    assert (resolved["metric_for_best"], resolved["greater_is_better"]) == ("eval_f1_macro", True)


def test_a_smaller_error_is_the_better_one(client: TestClient, reviews: str) -> None:
    sent = body("classification", reviews, training={"metric_for_best_model": "rmse"})
    assert client.post("/v1/jobs", json=sent).json()["resolved"]["greater_is_better"] is False


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"seq2seq": {"source_prefix": "x"}}, "seq2seq"),
        ({"classification": {"class_weight": "balanced"}}, "classification.class_weight"),
        ({"classification": {"problem": "guess"}}, "classification.problem"),
        ({"training": {"metric_for_best_model": "bleu"}}, "training.metric_for_best_model"),
        (
            {"classification": {"problem": "regression"}, "training": {"metric_for_best_model": "accuracy"}},
            "training.metric_for_best_model",
        ),
        ({"training": {"predict_with_generate": True}}, "training.predict_with_generate"),
    ],
)
def test_what_a_classifier_cannot_take_is_refused(
    client: TestClient, reviews: str, changes: dict[str, Any], param: str
) -> None:
    error = error_of(client.post("/v1/jobs", json=body("classification", reviews, **changes)), 422)
    assert error["param"].startswith(param)


def test_rows_of_another_method_are_refused_with_what_is_needed(client: TestClient, dataset: Datasets) -> None:
    error = error_of(client.post("/v1/jobs", json=body("classification", dataset())), 422)
    assert error["param"] == "dataset.train"
    assert "label" in error["message"]


def test_generation_is_set_among_the_training_options(client: TestClient, dataset: Datasets) -> None:
    training = {
        "predict_with_generate": True,
        "generation_max_length": "64",
        "generation_config": {"num_beams": 4, "length_penalty": 0.8},
        "metric_for_best_model": "bleu",
    }
    job = client.post("/v1/jobs", json=body("seq2seq", dataset(), training=training)).json()
    kept = job["resolved"]["training"]
    assert (kept["predict_with_generate"], kept["generation_max_length"]) == (True, 64)
    assert kept["generation_config"] == {"num_beams": 4, "length_penalty": 0.8}
    assert (job["resolved"]["metric_for_best"], job["resolved"]["greater_is_better"]) == ("eval_bleu", True)


@pytest.mark.parametrize(
    ("training", "param"),
    [
        ({"metric_for_best_model": "bleu"}, "training.metric_for_best_model"),
        ({"generation_num_beams": 4}, "training.generation_num_beams"),
        ({"predict_with_generate": True, "num_beams": 4}, "training.num_beams"),
        ({"predict_with_generate": True, "generation_config": {"beams": 4}}, "training.generation_config"),
        ({"predict_with_generate": True, "generation_config": "/etc/passwd"}, "training.generation_config"),
        ({"predict_with_generate": True, "generation_max_length": 1}, "training.generation_max_length"),
        ({"sortish_sampler": True}, "training.sortish_sampler"),
    ],
)
def test_generation_settings_in_the_wrong_place_are_refused(
    client: TestClient, dataset: Datasets, training: dict[str, Any], param: str
) -> None:
    error = error_of(client.post("/v1/jobs", json=body("seq2seq", dataset(), training=training)), 422)
    assert error["param"] == param


def test_pairs_inside_objects_are_mapped_by_dotted_columns(client: TestClient, dataset: Datasets) -> None:
    train = dataset(name="wmt", format="columns", columns=("translation",))
    columns = {"prompt": "translation.en", "completion": "translation.ro"}
    sent = body("seq2seq", train) | {"dataset": {"train": train, "columns": columns}}
    error = error_of(client.post("/v1/jobs", json=sent), 422)
    assert "looks into objects" in error["message"]  # the fixture's columns hold strings


def test_tags_need_lists(client: TestClient, dataset: Datasets) -> None:
    train = dataset(name="ner", format="columns", columns=("tokens", "tags"))
    error = error_of(client.post("/v1/jobs", json=body("token_classification", train)), 422)
    assert "array" in error["message"]


def test_a_reward_model_is_resolved_with_its_block(client: TestClient, dataset: Datasets) -> None:
    train = dataset(name="pairs", format="preference", columns=("prompt", "chosen", "rejected"))
    options = {"center_rewards_coefficient": "0.01"}
    sent = body("reward", train, reward=options, training={"metric_for_best_model": "accuracy"})
    resolved = client.post("/v1/jobs", json=sent).json()["resolved"]
    assert (resolved["data"]["format"], resolved["reward"]) == ("preference", {"center_rewards_coefficient": 0.01})
    assert (resolved["metric_for_best"], resolved["greater_is_better"]) == ("eval_accuracy", True)
    sent = body("reward", train, reward={"center_reward_coefficient": 0.01})
    error = error_of(client.post("/v1/jobs", json=sent), 422)
    assert error["param"] == "reward.center_reward_coefficient"
    assert "center_rewards_coefficient" in json.dumps(error)
