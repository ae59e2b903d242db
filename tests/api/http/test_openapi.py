"""The OpenAPI document is whole: what a client is made from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

Operation = tuple[str, str, dict[str, Any]]


@pytest.fixture
def document(client: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/v1/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> Iterator[Operation]:
    for path, methods in document["paths"].items():
        if path.startswith("/v1/"):
            for method, operation in methods.items():
                yield path, method, operation


def test_every_operation_says_what_it_does_and_how_it_fails(document: dict[str, Any]) -> None:
    found = list(operations(document))
    assert len(found) >= 20
    for path, method, operation in found:
        where = f"{method} {path}"
        assert operation.get("summary"), where
        if path.startswith("/v1/health"):
            continue
        expected = {"401", "403", "422", "503"} | ({"404"} if "{" in path else set())
        assert expected <= set(operation["responses"]), where
        for status, answer in operation["responses"].items():
            if status[0] in "45":
                schema = answer["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorOut"}, f"{where} {status}"


def test_every_json_body_has_an_example(document: dict[str, Any]) -> None:
    n_bodies = 0
    for path, method, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is not None:
            n_bodies += 1
            assert content.get("examples") or content.get("example"), f"{method} {path}"
    assert n_bodies >= 2


def test_every_operation_has_an_id_of_its_own(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(ids)) == len(ids)


def test_the_examples_of_a_job_are_accepted(document: dict[str, Any], client: TestClient, dataset: Any) -> None:
    content = document["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
    for example in content["examples"].values():
        sent = example["value"] | {"model": "tiny"}
        has_columns = "columns" in sent["dataset"]
        train = dataset(format="columns", columns=("question", "answer")) if has_columns else dataset()
        sent["dataset"] = sent["dataset"] | {"train": train}
        answer = client.post("/v1/jobs", json=sent)
        assert answer.status_code == 201, answer.text
