"""Problems say the full path, the found value and the nearest name, at any depth."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainer_core.contract import LoraAdapter, ParallelSpec
from trainer_core.problems import OptionsInvalid, Problem, from_validation_error, nearest, show


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Other(Strict):
    type: Literal["other"] = "other"
    width: int = 1


class Dataset(Strict):
    train: str
    columns: dict[str, str] = {}


class Body(Strict):
    name: str
    hub_token: int | None = None
    adapter: LoraAdapter | None = None
    either: Annotated[LoraAdapter | Other, Field(discriminator="type")] | None = None
    plain_union: Other | Dataset | None = None
    many: list[Dataset] = []
    named: dict[str, Other] = {}
    parallel: ParallelSpec = ParallelSpec()


def problems(body: dict[str, Any], prefix: str = "") -> dict[str, Problem]:
    with pytest.raises(ValidationError) as caught:
        Body.model_validate({"name": "n", **body})
    return {problem.param: problem for problem in from_validation_error(caught.value, Body, prefix)}


@pytest.mark.parametrize(
    ("body", "param", "near"),
    [
        ({"adaptor": None}, "adaptor", "adapter"),
        ({"adapter": {"alhpa": 1, "lora_alhpa": 2}}, "adapter.lora_alhpa", "lora_alpha"),
        ({"either": {"type": "lora", "lora_alhpa": 1}}, "either.lora_alhpa", "lora_alpha"),
        ({"either": {"type": "other", "widht": 1}}, "either.widht", "width"),
        ({"many": [{"train": "a"}, {"train": "b", "colunms": {}}]}, "many[1].colunms", "columns"),
        ({"named": {"x": {"widht": 1}}}, "named.x.widht", "width"),
        ({"parallel": {"zero_stgae": 2}}, "parallel.zero_stgae", "zero_stage"),
    ],
)
def test_unknown_key_has_its_full_path_and_the_nearest_name(body: dict[str, Any], param: str, near: str) -> None:
    problem = problems(body)[param]
    assert problem.code == "unknown_key"
    assert problem.hint == f"Did you mean `{near}`?"


def test_member_of_the_other_discriminator_is_not_offered() -> None:
    problem = problems({"either": {"type": "other", "lora_alpha": 1}})["either.lora_alpha"]
    assert problem.hint == "Valid here: type, width."


def test_prefix_stands_before_every_path() -> None:
    assert set(problems({"adapter": {"r": True}}, prefix="job")) == {"job.adapter.r"}


def test_plain_union_is_one_problem_a_path() -> None:
    found = problems({"plain_union": {"train": 5}})
    assert set(found) == {"plain_union.train"}


def test_missing_and_wrong_values_say_what_was_found() -> None:
    found = problems({"many": [{}], "adapter": {"r": "1e3", "bias": "lora-only"}, "parallel": {"zero_stage": 7}})
    assert found["many[0].train"].code == "missing"
    assert found["adapter.r"].found == "'1e3'"
    assert "digits" in found["adapter.r"].message
    assert found["adapter.bias"].hint == "Did you mean `lora_only`?"
    assert found["parallel.zero_stage"].found == "7"


def test_union_of_list_and_literal_is_one_problem() -> None:
    found = problems({"adapter": {"target_modules": 5}})
    assert set(found) == {"adapter.target_modules"}
    assert "list" in found["adapter.target_modules"].message
    assert "all-linear" in found["adapter.target_modules"].message


def test_found_values_are_cut_and_secrets_hidden() -> None:
    assert problems({"hub_token": "hf_" + "a" * 40})["hub_token"].found == "(hidden)"
    assert len(problems({"adapter": {"r": "x" * 5000}})["adapter.r"].found or "") <= 60
    assert show({"a": 1}) == "an object with 1 keys"
    assert show([1] * 500) == "a list of 500"
    assert show(10**5000) == "a whole number of 16610 bits"
    assert len(str(problems({"k" * 4000: 1}))) < 600


def test_nearest_ignores_case_and_gives_nothing_when_far() -> None:
    assert nearest("Learning_Rate", ["learning_rate", "logging_steps"]) == "learning_rate"
    assert nearest("zzz", ["learning_rate"]) is None


def test_exception_tells_every_problem() -> None:
    error = OptionsInvalid([Problem("a", "is wrong", "x"), Problem("b", "is too large", "y", "Use 3.", "9")])
    assert str(error) == "a: is wrong.\nb: is too large (found 9). Use 3."
