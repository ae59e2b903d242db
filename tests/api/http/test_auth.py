"""Keys, browser sessions, permissions, and the first key."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from sqlalchemy import func, select
from starlette.testclient import TestClient

from api import deps
from api.app import create_app
from api.core import auth
from api.core.auth import Permission
from api.core.db import Database, now
from api.core.errors import Invalid
from api.core.settings import Settings
from api.core.tables import ApiKey, BrowserSession
from api.deps import SESSION_COOKIE, Allow
from tests.api.http.conftest import AUTH, KEY, error_of

# What may be reached without a key, and why.
PUBLIC = {
    "/v1/health/live": "a probe has no key",
    "/v1/health/ready": "a probe has no key",
}


def routes_of(app: FastAPI) -> Iterator[tuple[str, APIRoute]]:
    """Every route with its whole path; an included router is opened."""
    for context in app.router.routes:
        yield from _opened(context)


def _opened(route: Any) -> Iterator[tuple[str, APIRoute]]:
    if isinstance(route, APIRoute):
        yield route.path, route
    elif hasattr(route, "original_router"):
        for inner in route.original_router.routes:
            yield from _opened(inner)


def permissions(dependant: Dependant) -> set[Permission]:
    found = {dependant.call.permission} if isinstance(dependant.call, Allow) else set()
    return found.union(*(permissions(inner) for inner in dependant.dependencies))


def test_every_route_names_one_permission(app: FastAPI) -> None:
    found = {(path, method): permissions(route.dependant) for path, route in routes_of(app) for method in route.methods}
    assert ("/v1/jobs", "POST") in found
    assert ("/v1/jobs/{job_id}/logs", "GET") in found
    without = {path for (path, _), named in found.items() if len(named) != 1}
    assert {path for path in without if path.startswith("/v1/")} == set(PUBLIC)
    writes = {path for (path, method), named in found.items() if method != "GET" and any(":read" in p for p in named)}
    odd = {path for path in writes if path.startswith("/v1/") and found.get((path, "GET")) is None}
    assert odd == {"/v1/estimates"}  # takes a job body, and so a POST, but changes nothing


@pytest.mark.parametrize(
    "header", [None, "Bearer wrong", "Bearer", "Basic dXNlcg==", KEY, "Bearer ty-" + "x" * 5000, "Bearer \xff"]
)
def test_without_a_key_that_is_known_nothing_is_answered(app: FastAPI, header: str | None) -> None:
    with TestClient(app) as client:
        headers = {} if header is None else {"Authorization": header.encode("latin-1")}
        for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/v1/jobs/nope/events")):
            answer = client.request(method, path, headers=headers)  # type: ignore[arg-type]
            assert error_of(answer, 401)["code"] == "unauthenticated"
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert KEY not in answer.text


def test_a_revoked_key_is_refused(client: TestClient, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deps, "ACTOR_KEPT_S", 0.0)
    assert client.get("/v1/jobs").status_code == 200
    with database.session() as session:
        session.scalars(select(ApiKey).where(ApiKey.key_sha256 == auth.digest(KEY))).one().revoked_at = now()
    error_of(client.get("/v1/jobs"), 401)


def test_a_role_without_the_permission_is_refused(
    client: TestClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(auth.ROLES, "reader", frozenset({Permission.JOBS_READ}))
    with database.session() as session:
        _row, key = auth.add_key(session, "reader", "reader")
    headers = {"Authorization": f"Bearer {key}"}
    assert client.get("/v1/jobs", headers=headers).status_code == 200
    error = error_of(client.post("/v1/jobs/nope/cancel", headers=headers), 403)
    assert error["code"] == "denied"
    assert "jobs:write" in error["message"]


# Browser sessions ----------------------------------------------------------------------------------------------------


@pytest.fixture
def browser(app: FastAPI, database: Database) -> Iterator[TestClient]:
    with TestClient(app) as client:
        with database.session() as session:
            token = auth.open_browser_session(session, KEY)
        client.cookies.set(SESSION_COOKIE, token)
        yield client


def test_a_browser_session_reads(browser: TestClient) -> None:
    assert browser.get("/v1/jobs").status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://testserver.evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://evil.example"}, 403),
        ({"Origin": "http://testserver"}, 404),
        ({"Sec-Fetch-Site": "same-origin"}, 404),
    ],
)
def test_a_cookie_changes_something_only_from_our_own_pages(
    browser: TestClient, headers: dict[str, str], status: int
) -> None:
    error_of(browser.post("/v1/jobs/nope/cancel", headers=headers), status)


def test_a_browser_session_ends(browser: TestClient, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deps, "ACTOR_KEPT_S", 0.0)
    with database.session() as session:
        session.scalars(select(BrowserSession)).one().expires_at = now()
    error_of(browser.get("/v1/jobs"), 401)
    with database.session() as session:
        token = auth.open_browser_session(session, KEY)  # clears what is over
        assert session.scalar(select(func.count()).select_from(BrowserSession)) == 1
        auth.close_browser_session(session, token)
        assert session.scalar(select(func.count()).select_from(BrowserSession)) == 0


def test_the_database_holds_digests_only(browser: TestClient, database: Database) -> None:
    with database.reading() as session:
        kept = [row.key_sha256 for row in session.scalars(select(ApiKey))]
        kept += [row.token_sha256 for row in session.scalars(select(BrowserSession))]
    assert all(len(text) == 64 for text in kept)
    assert KEY not in kept
    assert browser.cookies[SESSION_COOKIE] not in kept


# The first key -------------------------------------------------------------------------------------------------------


def test_the_first_start_makes_a_key_and_the_next_keeps_it(settings: Settings, database: Database) -> None:
    for _ in range(2):
        with TestClient(create_app(settings, database=database)) as client:
            key = settings.key_file.read_text().strip()
            assert client.get("/v1/jobs", headers={"Authorization": f"Bearer {key}"}).status_code == 200
    assert settings.key_file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in settings.data_dir.iterdir() if "api-key" in path.name] == ["api-key"]
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(ApiKey)) == 1


def test_a_key_file_that_the_database_does_not_know_is_taken_in(settings: Settings, database: Database) -> None:
    settings.data_dir.mkdir(parents=True)
    settings.key_file.write_text("ty-" + "a" * 43 + "\n")
    with TestClient(create_app(settings, database=database)) as client:
        assert client.get("/v1/jobs", headers={"Authorization": "Bearer ty-" + "a" * 43}).status_code == 200


@pytest.mark.parametrize("content", [b"", b"secret", b"ty-\xff", b"ty-short"])
def test_a_key_file_that_holds_no_key_stops_the_start(settings: Settings, database: Database, content: bytes) -> None:
    settings.data_dir.mkdir(parents=True)
    settings.key_file.write_bytes(content)
    with pytest.raises(Invalid, match="holds no API key"):
        auth.make_first_key(database, settings)


def test_processes_that_start_at_once_agree_on_one_key(settings: Settings, database: Database) -> None:
    barrier = threading.Barrier(6)
    failures: list[Exception] = []

    def start() -> None:
        barrier.wait()
        try:
            auth.make_first_key(database, settings)
        except Exception as error:  # a thread's failure must reach the test
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    key = auth.read_key_file(settings.key_file)
    with database.reading() as session:
        assert [row.key_sha256 for row in session.scalars(select(ApiKey))] == [auth.digest(key or "")]
    assert [Path(path).name for path in settings.data_dir.iterdir() if "api-key" in path.name] == ["api-key"]


def test_headers_of_the_key_are_the_only_way_in(client: TestClient) -> None:
    bare = TestClient(client.app)
    error_of(bare.get("/v1/jobs", params={"api_key": KEY}), 401)
    assert bare.get("/v1/jobs", headers=AUTH).status_code == 200
