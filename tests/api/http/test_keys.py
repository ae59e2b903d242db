"""API keys over HTTP: made with a role or permissions, shown once, used, expired, revoked; never the last admin."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import select
from starlette.testclient import TestClient

from api import deps
from api.core import auth, keys
from api.core.auth import Permission
from api.core.db import Database, now
from api.core.errors import Conflict
from api.core.tables import ApiKey
from api.deps import SESSION_COOKIE
from tests.api.http.conftest import KEY, error_of

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def make(client: TestClient) -> Make:
    def made(**body: Any) -> dict[str, Any]:
        answer = client.post("/v1/keys", json={"name": "a key", **body})
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        assert answer.headers["location"] == f"/v1/keys/{found['id']}"
        return found

    return made


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_a_secret_is_shown_once_and_only_its_digest_is_kept(client: TestClient, make: Make, database: Database) -> None:
    key = make(role="viewer")
    assert key["secret"].startswith("ty-")
    assert (key["state"], key["last_used_at"], key["expires_at"]) == ("active", None, None)
    listed = client.get("/v1/keys")
    assert key["id"] in [one["id"] for one in listed.json()["data"]]
    assert key["secret"] not in listed.text
    assert all("secret" not in one and "key_sha256" not in one for one in listed.json()["data"])
    with database.reading() as session:
        assert session.get_one(ApiKey, key["id"]).key_sha256 == auth.digest(key["secret"])


def test_each_key_does_what_it_may_and_nothing_else(client: TestClient, make: Make) -> None:
    viewer, member = make(role="viewer"), make(role="member")
    watcher = make(permissions=["jobs:read", "jobs:read"])
    assert (watcher["role"], watcher["permissions"]) == ("custom", ["jobs:read"])
    allowed = {
        ("GET", "/v1/jobs"): (viewer, member, watcher),
        ("GET", "/v1/datasets"): (viewer, member),
        ("POST", "/v1/jobs/job_none/cancel"): (member,),
        ("GET", "/v1/webhooks"): (viewer, member),
        ("GET", "/v1/keys"): (),
        ("POST", "/v1/keys"): (),
        ("DELETE", f"/v1/keys/{viewer['id']}"): (),
        ("POST", "/v1/nodes/n/drain"): (),
    }
    for (method, path), may in allowed.items():
        for key in (viewer, member, watcher):
            answer = client.request(method, path, headers=bearer(key["secret"]))
            assert (answer.status_code != 403) == (key in may), f"{method} {path} by {key['role']}: {answer.text}"
    refused = error_of(client.get("/v1/models", headers=bearer(watcher["secret"])), 403)
    assert "models:read" in refused["message"]


def test_every_permission_is_of_some_role() -> None:
    assert auth.ROLES["admin"] == frozenset(Permission)
    assert Permission.ADMIN not in auth.ROLES["member"] | auth.ROLES["viewer"]
    assert all(permission.endswith(":read") for permission in auth.ROLES["viewer"])


def test_a_revoked_key_is_refused_at_once_and_so_is_its_browser(
    app: FastAPI, client: TestClient, make: Make, database: Database
) -> None:
    key = make(role="viewer")
    with database.session() as session:
        token = auth.open_browser_session(session, key["secret"])
    browser = TestClient(app, cookies={SESSION_COOKIE: token})
    assert browser.get("/v1/jobs").status_code == 200
    assert client.get("/v1/jobs", headers=bearer(key["secret"])).status_code == 200
    for _ in range(2):
        assert client.delete(f"/v1/keys/{key['id']}").status_code == 204
        error_of(client.get("/v1/jobs", headers=bearer(key["secret"])), 401)
        error_of(browser.get("/v1/jobs"), 401)
    assert key["id"] not in client.get("/v1/keys").text
    [shown] = [one for one in client.get("/v1/keys?revoked=true").json()["data"] if one["id"] == key["id"]]
    assert (shown["state"], shown["revoked_at"] is not None) == ("revoked", True)


def test_an_expired_key_is_refused(
    client: TestClient, make: Make, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deps, "ACTOR_KEPT_S", 0.0)
    key = make(role="viewer", expires_at="2099-12-31")
    assert key["expires_at"] == "2099-12-31T00:00:00Z"
    assert client.get("/v1/jobs", headers=bearer(key["secret"])).status_code == 200
    with database.session() as session:
        session.get_one(ApiKey, key["id"]).expires_at = now() - timedelta(seconds=1)
    error_of(client.get("/v1/jobs", headers=bearer(key["secret"])), 401)
    [shown] = [one for one in client.get("/v1/keys").json()["data"] if one["id"] == key["id"]]
    assert shown["state"] == "expired"


def test_the_last_use_is_shown(client: TestClient, make: Make) -> None:
    key = make(role="viewer")
    client.get("/v1/jobs", headers=bearer(key["secret"]))
    client.get("/v1/datasets", headers=bearer(key["secret"]))
    [shown] = [one for one in client.get("/v1/keys").json()["data"] if one["id"] == key["id"]]
    assert shown["last_used_at"] is not None


def test_the_last_lasting_admin_key_stays(client: TestClient, make: Make) -> None:
    first, of_the_start = sorted(client.get("/v1/keys").json()["data"], key=lambda key: key["name"] != "test")
    assert client.delete(f"/v1/keys/{of_the_start['id']}").status_code == 204
    make(role="admin", expires_at="2099-01-01")  # it will be gone one day, so it does not count
    error = error_of(client.delete(f"/v1/keys/{first['id']}"), 409)
    assert error["code"] == "last_admin_key"
    other = make(permissions=["admin"])
    assert client.delete(f"/v1/keys/{first['id']}").status_code == 204
    error_of(client.get("/v1/keys"), 401)
    mine = bearer(other["secret"])
    error_of(client.delete(f"/v1/keys/{other['id']}", headers=mine), 409)


def test_two_admins_cannot_revoke_each_other(database: Database) -> None:
    with database.session() as session:
        ids = [auth.add_key(session, name)[0].id for name in ("ann", "bob")]
    barrier, outcomes = threading.Barrier(2), list[str]()

    def revoke(key_id: str) -> None:
        barrier.wait()
        try:
            with database.session() as session:
                keys.revoke(session, key_id)
            outcomes.append("revoked")
        except Conflict:
            outcomes.append("refused")

    threads = [threading.Thread(target=revoke, args=(key_id,)) for key_id in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused", "revoked"]
    with database.reading() as session:
        assert len(list(session.scalars(select(ApiKey).where(ApiKey.revoked_at.is_(None))))) == 1


@pytest.mark.parametrize(
    ("body", "param", "part"),
    [
        ({}, "role", "neither"),
        ({"role": "viewer", "permissions": ["jobs:read"]}, "role", "both"),
        ({"role": "veiwer"}, "role", "viewer"),
        ({"permissions": ["job:read"]}, "permissions[0]", "jobs:read"),
        ({"permissions": []}, "permissions", "at least 1"),
        ({"role": "viewer", "expires_at": "2020-01-01"}, "expires_at", "to come"),
        ({"role": "viewer", "expires_at": "soon"}, "expires_at", ""),
        ({"rôle": "viewer"}, "rôle", "unknown key"),
        ({"role": "viewer", "name": "two\nlines"}, "name", "one line"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_key_is_refused(client: TestClient, body: dict[str, Any], param: str, part: str) -> None:
    error = error_of(client.post("/v1/keys", json={"name": "x", **body}), 422)
    assert error["param"] == param
    assert part in str(error)
    assert {key["name"] for key in client.get("/v1/keys").json()["data"]} == {"test", "first key"}


def test_a_key_that_is_none(client: TestClient) -> None:
    for key_id in ("key_none", "..%2f", "key_0000000000000000000000"):
        assert client.delete(f"/v1/keys/{key_id}").status_code == 404
    assert client.get("/v1/jobs", headers=bearer(KEY)).status_code == 200
