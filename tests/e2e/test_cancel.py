"""Cancel in every state: `cancelled` means that no process of the run is left, and its devices go on to others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live import Json, Service, body, until
from trainyard import ApiError, Client

pytestmark = [pytest.mark.train, pytest.mark.xdist_group("e2e")]

ENDLESS = 100_000


@pytest.fixture(scope="module")
def endless(live: Service, chat: str) -> Iterator[Json]:
    """A job that holds both slots until somebody cancels it."""
    with live.client() as client:
        job = client.submit(body(chat, name="endless", steps=ENDLESS, n_processes=2, training={"logging_steps": 50}))
        yield live.wait_for(job["id"], "running", what=lambda job: job["step"] > 0)
        if client.job(job["id"])["state"] != "cancelled":
            client.cancel(job["id"])


def assert_cancelled_and_gone(live: Service, client: Client, job_id: str) -> None:
    """Looks from the first moment the service says `cancelled`: at that moment nothing may live any more."""

    def is_cancelled() -> bool:
        return bool(client.job(job_id)["state"] == "cancelled")

    until(is_cancelled, f"{job_id} to be cancelled")
    assert live.run_processes(job_id) == []
    assert [device for device in live.used_devices() if device["job_id"] == job_id] == []


def test_while_it_is_checked(live: Service, client: Client, chat: str) -> None:
    job = client.submit(body(chat, name="validating"))
    assert job["state"] == "validating"
    assert client.cancel(job["id"])["state"] == "cancelled"
    assert client.job(job["id"])["attempt"] == 0


def test_in_the_queue_behind_another(live: Service, client: Client, chat: str, endless: Json) -> None:
    job = client.submit(body(chat, name="queued"))
    waiting = live.wait_for(job["id"], "queued", what=lambda job: job["queue_position"] == 1)
    assert waiting["waiting_reason"]
    assert client.cancel(job["id"])["state"] == "cancelled"
    assert client.job(job["id"])["attempt"] == 0
    assert client.job(endless["id"])["state"] == "running", "cancelling one job leaves the other alone"


def test_while_it_trains_and_the_next_one_gets_its_devices(
    live: Service, client: Client, chat: str, endless: Json
) -> None:
    following = client.submit(body(chat, name="next", steps=ENDLESS, n_processes=2, training={"logging_steps": 50}))
    live.wait_for(following["id"], "queued")
    assert len(live.run_processes(endless["id"])) >= 3, "a launcher and two ranks"
    assert client.cancel(endless["id"])["state"] == "cancelling"
    assert client.cancel(endless["id"])["state"] in ("cancelling", "cancelled"), "asking twice is fine"
    assert_cancelled_and_gone(live, client, endless["id"])
    with pytest.raises(ApiError) as refused:
        client.cancel(endless["id"])
    assert (refused.value.status, refused.value.code) == (409, "already_finished")
    starting = live.wait_for(following["id"], "starting", "running")
    assert starting["state"] == "starting", "it is cancelled before its first step below"
    until(lambda: live.run_processes(following["id"]), "the next job's processes")
    client.cancel(following["id"])
    assert_cancelled_and_gone(live, client, following["id"])
    assert live.used_devices() == []


def test_each_says_who_and_when(client: Client) -> None:
    cancelled = list(client.jobs(state=["cancelled"]))
    assert {job["name"] for job in cancelled} >= {"validating", "queued", "endless", "next"}
    for job in cancelled:
        assert job["finished_at"]
        messages = [event["message"].lower() for event in client.events(job["id"])]
        assert any("cancel" in message for message in messages), messages
