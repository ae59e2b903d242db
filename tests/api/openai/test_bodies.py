"""How a body becomes the service's own, also for methods that a service may not have. Pure."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from api.core.errors import Invalid
from api.openai import bodies
from api.openai.bodies import CreateJob, as_spec
from trainer_core.contract.method_options import PreferenceOptions

STRING_CHECK = {"type": "string_check", "name": "n", "input": "{{item.a}}", "operation": "eq", "reference": "r"}
MULTI = {"type": "multi", "name": "m", "graders": {"a": STRING_CHECK}, "calculate_output": "a"}
PYTHON = {"type": "python", "name": "n", "source": "def grade(sample, item): return 1"}


class Sent(BaseModel):
    """Stands for the job body of a service that has every method: keeps what it is given."""

    model_config = ConfigDict(extra="allow")


def translated(monkeypatch: pytest.MonkeyPatch, **body: Any) -> dict[str, Any]:
    monkeypatch.setattr(bodies, "offered", lambda: ("sft", "preference", "rl"))
    monkeypatch.setattr(bodies, "JobSpec", Sent)
    return as_spec(CreateJob(model="tiny", training_file="file-a", **body)).model_dump()


def test_dpo_is_preference_with_the_sigmoid_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    hyper = {"beta": 0.3, "n_epochs": 2}
    sent = translated(monkeypatch, method={"type": "dpo", "dpo": {"hyperparameters": hyper}})
    assert (sent["method"], sent["preference"]) == ("preference", {"loss": "sigmoid", "beta": 0.3})
    assert sent["training"] == {"num_train_epochs": 2}
    assert translated(monkeypatch, method={"type": "dpo"})["preference"] == {"loss": "sigmoid"}


def test_dpo_is_a_job_of_this_service() -> None:
    hyper = {"beta": 0.3, "n_epochs": 2}
    method = {"type": "dpo", "dpo": {"hyperparameters": hyper}}
    spec = as_spec(CreateJob.model_validate({"model": "tiny", "training_file": "file-a", "method": method}))
    assert spec.method == "preference"
    assert spec.options == PreferenceOptions(loss="sigmoid", beta=0.3)


@pytest.mark.parametrize("grader", [STRING_CHECK, MULTI])
def test_reinforcement_is_rl_with_its_grader(monkeypatch: pytest.MonkeyPatch, grader: dict[str, Any]) -> None:
    block = {"grader": grader, "hyperparameters": {"eval_interval": 5}}
    sent = translated(monkeypatch, method={"type": "reinforcement", "reinforcement": block})
    assert (sent["method"], sent["rl"]["grader"], sent["training"]["eval_steps"]) == ("rl", grader, 5)


@pytest.mark.parametrize("grader", [PYTHON, {"type": "multi", "graders": {"a": STRING_CHECK, "b": PYTHON}}, {}])
def test_a_grader_that_needs_code_is_refused(monkeypatch: pytest.MonkeyPatch, grader: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as caught:
        translated(monkeypatch, method={"type": "reinforcement", "reinforcement": {"grader": grader}})
    assert caught.value.code == "unsupported_grader"


def test_what_has_no_meaning_is_refused_and_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    block = {"grader": STRING_CHECK, "hyperparameters": {"reasoning_effort": "high"}}
    with pytest.raises(Invalid) as caught:
        translated(monkeypatch, method={"type": "reinforcement", "reinforcement": block})
    assert caught.value.param == "method.reinforcement.hyperparameters.reasoning_effort"


@pytest.mark.parametrize("rows", range(1, 257))
def test_a_batch_is_always_the_one_that_was_asked_for(rows: int) -> None:
    batch = bodies._batch(rows, CreateJob(model="m", training_file="f"))
    per_device, accumulated = batch.values()
    assert per_device * accumulated == rows
    assert per_device <= bodies.MAX_PER_DEVICE
