"""Messages are written with the change they tell of, signed, sent, tried again, and logged."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import openai
import pytest

from api.core import moves, webhook_sending, webhooks
from api.core.db import Database, now
from api.core.events import NewEvent
from api.core.settings import Settings
from api.core.states import State
from api.core.webhook_keys import secret_of, sign
from api.core.webhook_messages import TYPES, Format, body_of
from api.core.webhook_tables import WebhookDelivery, WebhookEndpoint
from tests.api.core.rows import make_job, together
from tests.api.webhooks.conftest import Receiver, add, log_of
from worker.webhooks import WebhookSender


def move(database: Database, job_id: str, to: State, **values: Any) -> None:
    with database.session() as session:
        assert moves.move(session, job_id, to, NewEvent("test", f"now {to}"), **values)


def make_due(database: Database, delivery_id: str) -> None:
    with database.session() as session:
        session.get_one(WebhookDelivery, delivery_id).next_at = now()


def test_a_message_is_there_exactly_when_the_change_is(database: Database, settings: Settings) -> None:
    endpoint_id, _ = add(database, settings, "https://example.com/")
    job_id = make_job(database, State.RUNNING)
    with database.session() as session:
        moves.move(session, job_id, State.SUCCEEDED, NewEvent("test", "lost"))
        session.rollback()
    assert log_of(database, endpoint_id) == []
    with database.session() as session:
        assert not moves.move(session, job_id, State.QUEUED, NewEvent("t", "t"), only_from=[State.STARTING])
    assert log_of(database, endpoint_id) == []
    move(database, job_id, State.SUCCEEDED)
    assert sorted(row.type for row in log_of(database, endpoint_id)) == ["fine_tuning.job.succeeded", "job.succeeded"]


def test_only_what_was_asked_for_is_told(database: Database, settings: Settings) -> None:
    ends, _ = add(database, settings, "https://example.com/", events=["fine_tuning.job.*"])
    failures, _ = add(database, settings, "https://example.com/", events=["job.failed", "job.running"])
    job_id = make_job(database, State.STARTING)
    move(database, job_id, State.RUNNING)
    move(database, job_id, State.FAILED, cause={"code": "gpu_oom", "message": "no memory is left", "hint": "Use less."})
    assert [row.type for row in log_of(database, ends)] == ["fine_tuning.job.failed"]
    told = log_of(database, failures)
    assert [row.type for row in told] == ["job.running", "job.failed"]
    assert told[1].data["cause"]["code"] == "gpu_oom"
    assert told[0].data["cause"] is None


def test_the_official_client_takes_what_is_sent(database: Database, settings: Settings, receiver: Receiver) -> None:
    endpoint_id, secret = add(database, settings, receiver.url, events=["fine_tuning.job.succeeded"])
    job_id = make_job(database, State.RUNNING)
    move(database, job_id, State.SUCCEEDED)
    assert WebhookSender(database, settings).look() == 1
    [got] = receiver.got
    client = openai.OpenAI(api_key="none", webhook_secret=secret)
    event = client.webhooks.unwrap(got.body, got.headers)
    assert event.type == "fine_tuning.job.succeeded"
    assert event.data.id == job_id.replace("job_", "ftjob-")
    with pytest.raises(openai.InvalidWebhookSignatureError):
        client.webhooks.unwrap(got.body + b" ", got.headers)
    with pytest.raises(openai.InvalidWebhookSignatureError):
        client.webhooks.unwrap(got.body, got.headers, secret=secret_of(settings, endpoint_id, "another salt"))
    client.close()
    [row] = log_of(database, endpoint_id)
    assert (row.state, row.n_tries, got.headers["webhook-id"], got.path) == ("delivered", 1, row.id, "/hook?x=1")
    assert row.tries[0]["status"] == 200


def test_the_signature_is_the_one_of_the_standard() -> None:
    # The example of the Standard Webhooks libraries.
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body) == signature


def test_a_refusal_is_tried_again_with_the_same_id_and_body(
    database: Database, settings: Settings, receiver: Receiver
) -> None:
    endpoint_id, _ = add(database, settings, receiver.url, events=["job.running"])
    receiver.statuses = [500, 302]
    move(database, make_job(database, State.STARTING), State.RUNNING)
    sender = WebhookSender(database, settings)
    sender.look()
    [row] = log_of(database, endpoint_id)
    assert (row.state, row.n_tries) == ("pending", 1)
    assert timedelta(seconds=3) < row.next_at - now() <= timedelta(seconds=5)
    assert sender.look() == 0
    make_due(database, row.id)
    sender.look()  # a redirect is no yes, and is not followed
    make_due(database, row.id)
    sender.look()
    [row] = log_of(database, endpoint_id)
    assert (row.state, [one["status"] for one in row.tries]) == ("delivered", [500, 302, 200])
    assert {got.path for got in receiver.got} == {"/hook?x=1"}
    assert len({(got.headers["webhook-id"], got.body) for got in receiver.got}) == 1


def test_it_is_given_up_after_ten_tries_and_can_be_sent_again(
    database: Database, settings: Settings, receiver: Receiver
) -> None:
    endpoint_id, _ = add(database, settings, receiver.url, events=["job.running"])
    receiver.statuses = [503] * 10
    move(database, make_job(database, State.STARTING), State.RUNNING)
    sender = WebhookSender(database, settings)
    waits = []
    for _ in range(10):
        [row] = log_of(database, endpoint_id)
        make_due(database, row.id)
        sender.look()
        [row] = log_of(database, endpoint_id)
        waits.append(round((row.next_at - now()).total_seconds()))
    assert waits[:9] == pytest.approx(webhook_sending.WAITS_S, abs=2)
    assert (row.state, row.n_tries) == ("failed", 10)
    assert row.ended_at is not None
    assert sender.look() == 0
    with database.session() as session:
        webhooks.send_again(session, endpoint_id, row.id)
    sender.look()
    assert log_of(database, endpoint_id)[0].state == "delivered"


def test_nobody_there_is_told_without_the_url(database: Database, settings: Settings) -> None:
    endpoint_id, _ = add(database, settings, "http://127.0.0.1:1/secret-path", events=["job.running"])
    move(database, make_job(database, State.STARTING), State.RUNNING)
    WebhookSender(database, settings).look()
    [row] = log_of(database, endpoint_id)
    assert row.tries[0]["status"] is None
    assert row.tries[0]["error"] == "no answer (ConnectError)"


def test_gone_switches_the_webhook_off(database: Database, settings: Settings, receiver: Receiver) -> None:
    endpoint_id, _ = add(database, settings, receiver.url, events=["job.*"])
    receiver.statuses = [410]
    job_id = make_job(database, State.STARTING)
    move(database, job_id, State.RUNNING)
    WebhookSender(database, settings).look()
    with database.reading() as session:
        endpoint = session.get_one(WebhookEndpoint, endpoint_id)
        assert not endpoint.is_enabled
        assert "410" in (endpoint.disabled_reason or "")
    move(database, job_id, State.SUCCEEDED)
    assert [row.state for row in log_of(database, endpoint_id)] == ["failed"]


def test_what_waits_for_a_deleted_webhook_is_dropped(
    database: Database, settings: Settings, receiver: Receiver
) -> None:
    endpoint_id, _ = add(database, settings, receiver.url, events=["job.*"])
    move(database, make_job(database, State.STARTING), State.RUNNING)
    with database.session() as session:
        webhooks.delete(session, endpoint_id)
    assert WebhookSender(database, settings).look() == 0
    assert [row.state for row in log_of(database, endpoint_id)] == ["failed"]
    assert receiver.got == []


def test_two_senders_send_a_message_once(database: Database, settings: Settings, receiver: Receiver) -> None:
    endpoint_id, _ = add(database, settings, receiver.url, events=["job.running"])
    for _ in range(4):
        move(database, make_job(database, State.STARTING), State.RUNNING)
    assert sum(together([WebhookSender(database, settings).look] * 3)) == 4
    assert len(receiver.got) == 4
    assert {row.state for row in log_of(database, endpoint_id)} == {"delivered"}


def test_a_sender_that_died_is_followed_and_says_nothing_more(
    database: Database, settings: Settings, receiver: Receiver
) -> None:
    endpoint_id, _ = add(database, settings, receiver.url, events=["job.running"])
    move(database, make_job(database, State.STARTING), State.RUNNING)
    with database.session() as session:
        [lost] = webhook_sending.claim(session, settings)
    sender = WebhookSender(database, settings)
    assert sender.look() == 0
    make_due(database, lost.id)  # its lease is over
    assert sender.look() == 1
    with database.session() as session:
        webhook_sending.settle(session, lost, webhook_sending.Try(now(), 500, "late", 1.0))
    [row] = log_of(database, endpoint_id)
    assert (row.state, row.n_tries, len(row.tries)) == ("delivered", 2, 1)


def test_an_endpoint_that_hangs_does_not_take_every_place(database: Database, settings: Settings) -> None:
    add(database, settings, "https://slow.example.com/", events=["job.running"])
    for _ in range(200):
        move(database, make_job(database, State.STARTING), State.RUNNING)
    add(database, settings, "https://quick.example.com/", events=["job.running"])
    move(database, make_job(database, State.STARTING), State.RUNNING)
    with database.session() as session:
        claimed = {message.url for message in webhook_sending.claim(session, settings)}
    assert claimed == {"https://slow.example.com/", "https://quick.example.com/"}


def test_another_service_key_is_noticed(database: Database, settings: Settings, receiver: Receiver) -> None:
    endpoint_id, _ = add(database, settings, receiver.url, events=["job.running"])
    move(database, make_job(database, State.STARTING), State.RUNNING)
    WebhookSender(database, settings.model_copy(update={"data_dir": settings.data_dir / "other"})).look()
    [row] = log_of(database, endpoint_id)
    assert "another webhook key" in row.tries[0]["error"]
    assert receiver.got == []


def test_the_key_file_is_made_once_and_is_private(settings: Settings) -> None:
    made = together([lambda: secret_of(settings, "whk", "salt")] * 8)
    assert len(set(made)) == 1
    assert (settings.data_dir / "webhook-key").stat().st_mode & 0o777 == 0o600


def test_old_messages_are_forgotten(database: Database, settings: Settings) -> None:
    endpoint_id, _ = add(database, settings, "https://example.com/", events=["job.*"])
    for state in (State.STARTING, State.STARTING):
        move(database, make_job(database, state), State.RUNNING)
    old, young = log_of(database, endpoint_id)
    with database.session() as session:
        session.get_one(WebhookDelivery, old.id).ended_at = now() - timedelta(days=31)
        session.get_one(WebhookDelivery, young.id).ended_at = now() - timedelta(days=29)
    with database.session() as session:
        webhook_sending.tidy(session)
    assert [row.id for row in log_of(database, endpoint_id)] == [young.id]


# Bodies --------------------------------------------------------------------------------------------------------------

NASTY = "<!channel> & <http://evil.example|click> [a](http://evil.example)"
DATA = {
    "id": "job_" + "0" * 22,
    "name": NASTY,
    "state": "failed",
    "method": "sft",
    "model": "tiny",
    "attempt": 1,
    "message": "it failed",
    "cause": {"code": "gpu_oom", "message": "no memory is left", "hint": "Use less."},
}


@pytest.mark.parametrize("form", list(Format))
@pytest.mark.parametrize("event_type", ["job.failed", "fine_tuning.job.failed"])
def test_every_body_is_json_that_stays_the_same(form: Format, event_type: str) -> None:
    at = now()
    body = body_of(form, "evt_1", event_type, at, DATA)
    assert body == body_of(form, "evt_1", event_type, at, DATA)
    assert isinstance(json.loads(body), dict)


def test_names_are_text_in_slack_and_teams() -> None:
    slack = json.loads(body_of(Format.SLACK, "evt_1", "job.failed", now(), DATA))
    assert "<" not in slack["text"]
    assert "no memory is left Use less." in slack["text"]
    card = json.loads(body_of(Format.TEAMS, "evt_1", "job.failed", now(), DATA))["attachments"][0]["content"]
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    title = card["body"][0]["inlines"][0]
    assert (title["type"], title["text"], title["color"]) == ("TextRun", f"{NASTY}: failed", "Attention")


def test_plain_json_says_what_happened() -> None:
    plain = json.loads(body_of(Format.JSON, "evt_1", "job.failed", now(), DATA))
    assert (plain["event"], plain["id"], plain["state"]) == ("job.failed", DATA["id"], "failed")


def test_every_state_has_its_type() -> None:
    assert {f"job.{state}" for state in State} < set(TYPES)
