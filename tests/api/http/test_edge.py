"""Every answer: its id, its headers, the one error shape; a commit that fails is a request that fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import event, func, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from api.app import create_app
from api.core.db import Database
from api.core.settings import Settings
from api.core.tables import Job
from tests.api.http.conftest import AUTH, error_of

Body = Callable[..., dict[str, Any]]


@pytest.fixture
def failing_commit() -> Iterator[None]:
    """No transaction that wrote anything can be committed."""

    def refuse(session: Session) -> None:
        if session.info.get("trainyard_after_commit"):
            raise OperationalError("COMMIT", {}, ConnectionError("gone"))

    event.listen(Session, "before_commit", refuse)
    yield
    event.remove(Session, "before_commit", refuse)


@pytest.mark.usefixtures("failing_commit")
def test_a_commit_that_fails_fails_the_request(
    client: TestClient, body: Body, database: Database, sent: list[Any]
) -> None:
    answer = client.post("/v1/jobs", json=body())
    assert error_of(answer, 503)["code"] == "unavailable"
    assert answer.headers["retry-after"]
    assert sent == []
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(Job)) == 0


def test_an_unknown_path_and_a_wrong_method_have_the_one_shape(client: TestClient) -> None:
    assert error_of(client.get("/v1/nothing"), 404)["code"] == "not_found"
    assert error_of(client.get("/nothing"), 404)["code"] == "not_found"
    answer = client.put("/v1/jobs")
    assert error_of(answer, 405)["code"] == "method_not_allowed"
    assert "POST" in answer.headers["allow"]


def test_every_answer_has_an_id_and_the_headers(client: TestClient) -> None:
    for path in ("/v1/jobs", "/v1/nothing", "/v1/health/live"):
        headers = client.get(path).headers
        assert headers["x-request-id"].startswith("req_")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
    assert client.get("/v1/jobs", headers={"X-Request-Id": "abc-1"}).headers["x-request-id"] == "abc-1"
    assert client.get("/v1/jobs", headers={"X-Request-Id": "a b"}).headers["x-request-id"].startswith("req_")


def test_an_unexpected_error_tells_its_id_and_nothing_else(app: FastAPI, caplog: pytest.LogCaptureFixture) -> None:
    @app.get("/broken")
    def broken() -> None:
        raise RuntimeError("the inside")

    with TestClient(app, headers=AUTH) as client, caplog.at_level(logging.ERROR):
        answer = client.get("/broken", headers={"X-Request-Id": "find-me"})
    error = error_of(answer, 500)
    assert error["code"] == "internal"
    assert "find-me" in error["message"]
    assert "inside" not in answer.text
    assert answer.headers["x-request-id"] == "find-me"
    assert "find-me" in caplog.text
    assert "the inside" in caplog.text


def test_a_body_over_the_limit_is_refused(client: TestClient, settings: Settings) -> None:
    large = b'{"notes": "' + b"x" * settings.max_body_bytes + b'"}'
    headers = {"Content-Type": "application/json"}
    error = error_of(client.post("/v1/jobs", content=large, headers=headers), 413)
    assert error["code"] == "too_large"
    chunks = iter([large[i : i + 65536] for i in range(0, len(large), 65536)])  # sent without a length
    error_of(client.post("/v1/jobs", content=chunks, headers=headers), 413)
    multipart = {"Content-Type": "multipart/form-data; boundary=x"}
    error_of(client.post("/v1/jobs", content=large, headers=multipart), 413)


def test_a_database_that_is_away_is_said(settings: Settings, sent: list[Any]) -> None:
    database = Database(f"sqlite:///{settings.data_dir}/missing/nowhere.db")
    with TestClient(create_app(settings, database=database), headers=AUTH) as client:
        assert client.get("/v1/health/live").json() == {"status": "ok"}
        ready = client.get("/v1/health/ready")
        assert (ready.status_code, ready.json()["database"]) == (503, "away")
        error = error_of(client.get("/v1/jobs"), 503)
        assert error["code"] == "unavailable"
        assert "nowhere" not in error["message"]
    database.close()


def test_tables_of_another_version_are_not_ready(settings: Settings, sqlite_url: str) -> None:
    database = Database(sqlite_url)
    with database.session() as session:
        session.connection().exec_driver_sql("update alembic_version set version_num = 'older'")
    with TestClient(create_app(settings, database=database)) as client:
        ready = client.get("/v1/health/ready")
        assert (ready.status_code, ready.json()["tables"]) == (503, "outdated")
    database.close()


def test_a_service_with_its_tables_is_ready_whatever_the_queue_does(client: TestClient) -> None:
    ready = client.get("/v1/health/ready")
    assert (ready.status_code, ready.json()) == (200, {"status": "ok", "database": "ok", "tables": "current"})
