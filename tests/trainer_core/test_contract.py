"""The contract refuses what cannot be run."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from trainer_core.contract import LoraAdapter, PreflightReport


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"layers_to_transform": [0]}, "target_modules as a list"),
        ({"layers_pattern": "layers", "target_modules": ["q_proj"]}, "layers_to_transform"),
        ({"alhpa": 3}, "alhpa"),
    ],
)
def test_an_adapter_that_peft_would_refuse_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        LoraAdapter(**fields)


def test_layers_with_named_modules_are_accepted() -> None:
    adapter = LoraAdapter(target_modules=["q_proj"], layers_to_transform=[0], layers_pattern="layers")
    assert adapter.layers_to_transform == [0]


def test_a_failed_preflight_names_its_cause() -> None:
    with pytest.raises(ValidationError, match="cause"):
        PreflightReport(ok=False)
