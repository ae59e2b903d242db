"""The published schema of a job body accepts what the service accepts, and knows every option."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from starlette.testclient import TestClient

from api.routes.jobs import EXAMPLES
from trainer_core.arguments.table import ACCEPTED


@pytest.fixture
def schema(client: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/v1/schemas/job").json()
    return found


def test_it_names_every_field_and_option(schema: dict[str, Any]) -> None:
    assert {"model", "dataset", "adapter", "training", "parallel"} <= set(schema["properties"])
    training = schema["properties"]["training"]
    assert set(ACCEPTED) <= set(training["properties"])
    assert training["additionalProperties"] is False
    assert schema["additionalProperties"] is False
    rate = training["properties"]["learning_rate"]
    assert (rate["exclusiveMinimum"], rate["maximum"]) == (0, 100)
    assert "cosine" in training["properties"]["lr_scheduler_type"]["enum"]
    assert all(option["description"] for option in training["properties"].values())


def test_it_accepts_the_documented_jobs_and_refuses_what_is_misspelt(schema: dict[str, Any]) -> None:

    checker = jsonschema.Draft202012Validator(schema)
    checker.check_schema(schema)
    for example in EXAMPLES.values():
        checker.validate(example["value"])
    body = EXAMPLES["lora"]["value"]
    for bad in ({"lerning_rate": 1e-4}, {"learning_rate": 0}, {"lr_scheduler_type": "cosin"}, {"bf16": "yes"}):
        assert not checker.is_valid(body | {"training": bad}), bad
    assert not checker.is_valid(body | {"modle": "x"})
    assert checker.is_valid(body | {"training": {"learning_rate": "1e-4"}})
