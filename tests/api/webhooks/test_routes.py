"""The routes of webhooks: made, changed, tried out, looked into."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.app import create_app
from api.core import moves, queue
from api.core.auth import add_key
from api.core.db import Database
from api.core.events import NewEvent
from api.core.settings import Settings
from api.core.states import State
from tests.api.core.rows import make_job
from tests.api.webhooks.conftest import Receiver, log_of

KEY = "ty-" + "w" * 40


@pytest.fixture
def client(settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(queue, "_send", lambda *_: True)
    with database.session() as session:
        add_key(session, "test", key=KEY)
    with TestClient(create_app(settings, database=database), headers={"Authorization": f"Bearer {KEY}"}) as client:
        yield client


def made(client: TestClient, url: str, **more: Any) -> dict[str, Any]:
    answer = client.post("/v1/webhooks", json={"name": "hook", "url": url, **more})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_secret_is_shown_once(client: TestClient) -> None:
    hook = made(client, "https://example.com/hook")
    assert hook["secret"].startswith("whsec_")
    assert (hook["format"], hook["events"], hook["is_enabled"]) == ("standard", ["*"], True)
    shown = client.get(f"/v1/webhooks/{hook['id']}").json()
    assert {**shown, "secret": hook["secret"]} == hook
    assert hook["secret"] not in client.get("/v1/webhooks").text
    fresh = client.post(f"/v1/webhooks/{hook['id']}/rotate-secret").json()["secret"]
    assert fresh != hook["secret"]


def test_the_url_of_a_chat_room_is_not_shown(client: TestClient) -> None:
    hook = made(client, "https://hooks.slack.com/services/T0/B0/secret", format="slack")
    assert hook["url"] == "https://hooks.slack.com/…"
    assert hook["events"] == ["job.*"]
    assert "B0" not in client.get("/v1/webhooks").text


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"url": "https://example.com/"}, "name"),
        ({"name": "x", "url": "nowhere"}, "url"),
        ({"name": "x", "url": "https://example.com/", "format": "discord"}, "format"),
        ({"name": "x", "url": "https://example.com/", "events": ["job.exploded"]}, "events[0]"),
        ({"name": "x", "url": "https://example.com/", "secret": "mine"}, "secret"),
    ],
)
def test_a_bad_webhook_is_refused_by_its_field(client: TestClient, body: dict[str, Any], param: str) -> None:
    answer = client.post("/v1/webhooks", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["param"] == param


def test_private_targets_need_the_operators_word(settings: Settings, database: Database) -> None:
    with database.session() as session:
        add_key(session, "test", key=KEY)
    strict = settings.model_copy(update={"webhook_private_targets": False})
    with TestClient(create_app(strict, database=database), headers={"Authorization": f"Bearer {KEY}"}) as client:
        answer = client.post("/v1/webhooks", json={"name": "x", "url": "http://127.0.0.1:1/"})
        assert answer.json()["error"]["code"] == "target_private"
        hook = made(client, "https://example.com/")
        answer = client.patch(f"/v1/webhooks/{hook['id']}", json={"url": "http://[::1]/"})
        assert answer.json()["error"]["code"] == "target_private"


def test_a_target_allowed_once_is_not_sent_to_when_it_no_longer_is(
    settings: Settings, database: Database, client: TestClient, receiver: Receiver
) -> None:
    hook = made(client, receiver.url)
    strict = settings.model_copy(update={"webhook_private_targets": False})
    with TestClient(create_app(strict, database=database), headers={"Authorization": f"Bearer {KEY}"}) as other:
        sent = other.post(f"/v1/webhooks/{hook['id']}/test").json()
    assert "not a public address" in sent["tries"][0]["error"]
    assert receiver.got == []


def test_a_test_message_is_sent_at_once_and_logged(client: TestClient, receiver: Receiver) -> None:
    hook = made(client, receiver.url, events=["job.failed"])
    receiver.statuses = [500]
    failed = client.post(f"/v1/webhooks/{hook['id']}/test").json()
    assert (failed["state"], failed["tries"][0]["status"], failed["type"]) == ("pending", 500, "webhook.test")
    assert failed["next_at"] is not None
    sent = client.post(f"/v1/webhooks/{hook['id']}/test").json()
    assert (sent["state"], sent["next_at"]) == ("delivered", None)
    assert receiver.got[1].headers["webhook-id"] == sent["id"]
    page = client.get(f"/v1/webhooks/{hook['id']}/deliveries", params={"limit": 1}).json()
    assert ([row["id"] for row in page["data"]], page["has_more"]) == ([sent["id"]], True)
    rest = client.get(f"/v1/webhooks/{hook['id']}/deliveries", params={"after": page["next"]}).json()
    assert ([row["id"] for row in rest["data"]], rest["has_more"]) == ([failed["id"]], False)
    again = client.post(f"/v1/webhooks/{hook['id']}/deliveries/{sent['id']}/retry").json()
    assert (again["state"], again["n_tries"]) == ("pending", 0)


def test_a_webhook_is_changed_and_switched_off(client: TestClient, database: Database) -> None:
    hook = made(client, "https://example.com/a")
    path = f"/v1/webhooks/{hook['id']}"
    changed = client.patch(path, json={"name": "other", "events": ["job.failed"], "is_enabled": False}).json()
    assert (changed["name"], changed["events"], changed["is_enabled"]) == ("other", ["job.failed"], False)
    assert changed["url"] == "https://example.com/a"
    job_id = make_job(database, State.RUNNING)
    with database.session() as session:
        assert moves.move(session, job_id, State.FAILED, NewEvent("t", "t"))
    assert log_of(database, hook["id"]) == []
    for bad in ({"name": ""}, {"events": []}, {"url": ""}, {"is_enabled": None}, {"secret": "x"}):
        assert client.patch(path, json=bad).status_code == 422, bad


def test_a_deleted_webhook_is_gone(client: TestClient) -> None:
    hook = made(client, "https://example.com/")
    path = f"/v1/webhooks/{hook['id']}"
    assert client.delete(path).status_code == 204
    assert client.get("/v1/webhooks").json()["data"] == []
    answers = [client.get(path), client.delete(path), client.post(f"{path}/test"), client.get(f"{path}/deliveries")]
    assert {answer.status_code for answer in answers} == {404}
    assert client.post("/v1/webhooks/whk_x/deliveries/whd_x/retry").status_code == 404
