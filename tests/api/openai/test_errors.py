"""Every error below /openai/v1 has OpenAI's shape, wherever it comes from; elsewhere nothing changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from sqlalchemy.exc import OperationalError

from api.core import auth, fine_tunes
from api.core.auth import Permission
from api.openai.errors import rewritten
from tests.api.openai.conftest import KEY, Service

JSON, HTML = {"Content-Type": "application/json"}, {"Content-Type": "text/html"}


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=f"{service.url}/openai/v1", headers=headers, trust_env=False) as client:
        yield client


def error_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    error: dict[str, Any] = answer.json()["error"]
    assert set(answer.json()) == {"error"}
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert isinstance(error["type"], str)
    assert error["message"]
    assert all(error[key] is None or isinstance(error[key], str) for key in ("param", "code"))
    return error


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "code"),
    [
        ("GET", "/nowhere", {}, 404, "not_found"),
        ("GET", "", {}, 404, "not_found"),
        ("GET", "/fine_tuning/jobs/ftjob-x", {}, 404, "fine_tune_not_found"),
        ("POST", "/fine_tuning/jobs/ftjob-x/cancel", {}, 404, "fine_tune_not_found"),
        ("POST", "/fine_tuning/jobs/ftjob-x/pause", {}, 404, "fine_tune_not_found"),
        ("GET", "/fine_tuning/jobs/ftjob-x/events", {}, 404, "fine_tune_not_found"),
        ("GET", "/fine_tuning/jobs/ftjob-x/checkpoints", {}, 404, "fine_tune_not_found"),
        ("GET", "/files/file-x", {}, 404, "not_found"),
        ("GET", "/files/file-result-x/content", {}, 404, "not_found"),
        ("GET", "/models/nothing", {}, 404, "model_not_found"),
        ("POST", "/uploads/upload_x/cancel", {}, 404, "not_found"),
        ("PUT", "/files", {}, 405, "method_not_allowed"),
        ("POST", "/fine_tuning/jobs", {"json": {}}, 400, "missing"),
        ("POST", "/fine_tuning/jobs", {"json": [1]}, 400, "invalid"),
        ("POST", "/fine_tuning/jobs", {"content": b"{", "headers": JSON}, 400, "json_invalid"),
        ("POST", "/fine_tuning/jobs", {"content": b"0" * (5 * 2**20)}, 413, "too_large"),
        ("GET", "/fine_tuning/jobs?limit=x", {}, 400, "invalid"),
        ("POST", "/files", {"content": b"x", "headers": HTML}, 400, "content_type_unsupported"),
        ("POST", "/uploads", {"json": {"filename": "a"}}, 400, "missing"),
    ],
)
def test_an_error_has_all_four_keys(
    http: httpx.Client, method: str, path: str, options: dict[str, Any], status: int, code: str
) -> None:
    error = error_of(http.request(method, path, **options), status)
    assert (error["code"], error["type"]) == (code, "invalid_request_error")


def test_a_job_that_is_not_there_is_told_as_openai_does(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.fine_tuning.jobs.retrieve("ftjob-nothing")
    assert (caught.value.code, caught.value.param) == ("fine_tune_not_found", "fine_tune_id")


@pytest.mark.parametrize("header", ["Bearer wrong", "Basic eDp5", ""])
def test_a_bad_key_is_a_401(http: httpx.Client, header: str) -> None:
    for path in ("/models", "/files", "/fine_tuning/jobs", "/fine_tuning/jobs/ftjob-x"):
        error = error_of(http.get(path, headers={"Authorization": header}), 401)
        assert (error["code"], error["type"]) == ("invalid_api_key", "authentication_error")


def test_a_key_without_the_permission_is_a_403(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(auth.ROLES, "reader", frozenset({Permission.JOBS_READ}))
    with service.database.session() as session:
        _, key = auth.add_key(session, "reader", "reader")
    with service.client(key) as client:
        assert list(client.fine_tuning.jobs.list()) == []
        with pytest.raises(openai.PermissionDeniedError) as caught:
            client.models.list()
    assert caught.value.type == "permission_error"


def test_an_unexpected_fault_is_a_500_that_tells_nothing(
    http: httpx.Client, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the inside")

    monkeypatch.setattr(fine_tunes, "page", fail)
    error = error_of(http.get("/fine_tuning/jobs"), 500)
    assert (error["type"], error["code"]) == ("server_error", "internal")
    assert "the inside" not in error["message"]
    with pytest.raises(openai.InternalServerError):
        client.fine_tuning.jobs.list()


def test_a_database_that_is_away_is_a_503_to_be_retried(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OperationalError("SELECT", {}, Exception("away"))

    monkeypatch.setattr(fine_tunes, "page", fail)
    answer = http.get("/fine_tuning/jobs")
    assert error_of(answer, 503)["type"] == "server_error"
    assert answer.headers["retry-after"] == "2"


def test_the_services_own_api_keeps_its_shape(service: Service, http: httpx.Client) -> None:
    for path in ("/v1/nowhere", "/openai/v1x"):
        error = httpx.get(f"{service.url}{path}", trust_env=False).json()["error"]
        assert set(error) == {"code", "message", "param", "details"}


def test_several_faults_are_all_told() -> None:
    faults = [
        {"param": "dataset.train", "message": "dataset.train: there is none", "code": "not_found", "hint": None},
        {"param": "training.x", "message": "training.x: unknown key", "code": "unknown_key", "hint": None},
    ]
    error = {"code": "not_found", "message": faults[0]["message"], "param": "dataset.train", "details": faults}
    told = rewritten(error, 422)
    assert told["message"] == "training_file: there is none\ntraining.x: unknown key"
    assert told["param"] == "training_file"
