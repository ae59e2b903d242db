"""The one rule for numbers: what is one, what is not, and that the number used is the one stored."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from trainer_core.contract import DataSource, LoraAdapter, ParallelSpec
from trainer_core.numbers import (
    Fraction,
    Number,
    OpenFraction,
    PositiveNumber,
    PositiveWholeNumber,
    as_count,
    as_number,
    as_whole,
    same_number,
)

NOT_NUMBERS = [
    "nan", "NaN", "inf", "-Infinity", "1e400", "", " 1", "1 ", "1_000", "0x10", "1,5", "1e", "e5", ".", "--1", "١",
    "auto",
    "1" * 65, True, False, None, [], {}, [1], math.nan, math.inf, -math.inf, json.loads("1e400"), 10**400,
]  # fmt: skip
NOT_WHOLE = [*NOT_NUMBERS, 3.7, 1000.0, 1e3, "1e3", "8.0", "3.7", 2**63, -(2**70), str(2**64)]


class Sample(BaseModel):
    number: Number = 0
    positive: PositiveNumber = 1
    fraction: Fraction = 0
    share: OpenFraction = 0.5
    whole: PositiveWholeNumber = 1


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("1e-4", 1e-4),
        ("5e-5", 5e-5),
        ("8", 8.0),
        ("-1", -1.0),
        (".5", 0.5),
        ("2.", 2.0),
        ("+1E+2", 100.0),
        (3, 3.0),
        (0, 0.0),
    ],
)
def test_number_is_read_as_the_number_used(value: object, number: float) -> None:
    assert as_number(value) == number


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
def test_what_is_no_finite_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected a"):
        as_number(value)


@pytest.mark.parametrize(("value", "whole"), [("8", 8), (8, 8), (-1, -1), ("007", 7), (2**63 - 1, 2**63 - 1)])
def test_whole_number_is_read(value: object, whole: int) -> None:
    assert as_whole(value) == whole


@pytest.mark.parametrize("value", NOT_WHOLE, ids=repr)
def test_what_is_not_written_as_a_whole_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected a"):
        as_whole(value)


@pytest.mark.parametrize(("value", "count"), [(2e8, 200_000_000), ("5e8", 500_000_000), (12, 12), (1e9, 10**9)])
def test_count_takes_a_scientific_whole(value: object, count: int) -> None:
    found = as_count(value)
    assert found == count
    assert isinstance(found, int)


@pytest.mark.parametrize("value", [2.5, "0.5", True, "nan", None])
def test_count_refuses_fractions(value: object) -> None:
    with pytest.raises(ValueError, match="expected a"):
        as_count(value)


def test_same_number_goes_by_the_number_and_not_by_the_spelling() -> None:
    assert same_number(8, "8")
    assert same_number(8.0, 8)
    assert same_number("1e-4", 0.0001)
    assert not same_number(8, 9)
    assert not same_number(True, 1)
    assert not same_number("auto", "auto")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_double_survives_as_text(number: float) -> None:
    assert as_number(repr(number)) == number


@given(st.text(max_size=12))
def test_any_text_is_a_finite_number_or_refused(text: str) -> None:
    try:
        number = as_number(text)
    except ValueError:
        return
    assert math.isfinite(number)
    assert number == float(text)


@pytest.mark.parametrize(
    "body",
    [
        {"number": "nan"}, {"number": True}, {"positive": 0}, {"positive": "-1e-4"}, {"fraction": 1}, {"share": 0},
        {"share": 1}, {"whole": 0}, {"whole": 1000.0}, {"whole": True},
    ],
)  # fmt: skip
def test_types_hold_their_bounds(body: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Sample.model_validate(body)


def test_types_store_the_number_used() -> None:
    sample = Sample.model_validate({"number": "1e-4", "whole": "8"})
    assert sample.model_dump(mode="json", include={"number", "whole"}) == {"number": 0.0001, "whole": 8}


@pytest.mark.parametrize("value", [True, "nan", "1e400", 8.5, 8.0, 0, -1, "auto", 4097])
def test_adapter_rank_goes_by_the_rule(value: object) -> None:
    with pytest.raises(ValidationError):
        LoraAdapter.model_validate({"r": value})


def test_contract_reads_text_numbers() -> None:
    adapter = LoraAdapter.model_validate({"r": "8", "lora_alpha": "1.6e1", "lora_dropout": "5e-2"})
    assert (adapter.r, adapter.lora_alpha, adapter.lora_dropout) == (8, 16.0, 0.05)
    assert ParallelSpec.model_validate({"n_processes": "2"}).n_processes == 2


@pytest.mark.parametrize("value", [True, False, 2.0, 4, -1, "two"])
def test_zero_stage_goes_by_the_rule(value: object) -> None:
    with pytest.raises(ValidationError):
        ParallelSpec.model_validate({"zero_stage": value})


@pytest.mark.parametrize("value", [True, 0, 1, "nan", 1.5])
def test_eval_fraction_goes_by_the_rule(value: object) -> None:
    with pytest.raises(ValidationError):
        DataSource.model_validate({"train": "/rows", "format": "text", "eval_fraction": value})
