"""Query parameters: an unknown one is refused on every route, with the nearest name."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from tests.api.http.conftest import error_of
from tests.api.http.test_auth import routes_of


def test_the_nearest_name_is_told(client: TestClient) -> None:
    error = error_of(client.get("/v1/jobs?lable=team:a&limit=5&nane=x"), 422)
    assert (error["code"], error["param"]) == ("unknown_parameter", "lable")
    assert "`label`" in error["message"]
    assert [(one["param"], one["hint"]) for one in error["details"]] == [
        ("lable", "Did you mean `label`?"),
        ("nane", "Did you mean `name`?"),
    ]


def test_every_route_refuses_what_it_does_not_know(app: FastAPI, client: TestClient) -> None:
    n_tried = 0
    for path, route in routes_of(app):
        for method in route.methods:
            if path.startswith("/v1/") and method != "HEAD":
                n_tried += 1
                answer = client.request(method, path.replace("{", "").replace("}", "") + "?nonsense=1")
                error = error_of(answer, 422)
                assert "nonsense" in error["message"], f"{method} {path}: {answer.text}"
    assert n_tried > 60


def test_a_stranger_is_told_nothing(app: FastAPI) -> None:
    error_of(TestClient(app).get("/v1/jobs?nonsense=1"), 401)


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs?state=queued&state=running&limit=3", "/v1/keys?revoked=true"])
def test_what_is_known_is_taken(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 200
