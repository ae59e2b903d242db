"""A run that is paused goes on as if nothing had happened; a drained node gives its runs back to the queue."""

from __future__ import annotations

import pytest

from tests.live import Json, Service, body, until
from trainyard import ApiError, Client

pytestmark = [pytest.mark.train, pytest.mark.xdist_group("e2e")]

EVERY = {"eval_steps": 200, "save_steps": 200}


def losses(client: Client, job_id: str) -> list[tuple[int, float]]:
    rows = client.metrics(job_id)
    return [(row["step"], row["values"]["loss"]) for row in rows if row["kind"] == "train" and "loss" in row["values"]]


def messages(client: Client, job_id: str) -> list[str]:
    return [event["message"] for event in client.events(job_id)]


def test_a_paused_run_has_the_losses_of_one_that_was_not(live: Service, client: Client, chat: str) -> None:
    sent = body(chat, name="paused", steps=400, n_processes=2, training=EVERY)
    paused = client.submit(sent)
    live.wait_for(paused["id"], "running", what=lambda job: job["step"] > 30)
    assert client.pause(paused["id"])["state"] == "pausing"
    assert client.pause(paused["id"])["state"] in ("pausing", "paused"), "asking twice is fine"
    job = live.wait_for(paused["id"], "paused")
    assert live.run_processes(job["id"]) == []
    assert live.used_devices() == []
    [saved] = [checkpoint["step"] for checkpoint in client.checkpoints(job["id"])]
    assert 30 < saved < 400
    assert saved == job["step"]

    # While it is paused another takes its devices, and is what it is compared with.
    whole = client.submit({**sent, "name": "whole"})
    live.wait_for(whole["id"], "succeeded")
    assert client.resume(job["id"])["state"] == "queued"
    done = live.wait_for(job["id"], "succeeded")
    assert (done["attempt"], done["faults"], done["step"]) == (2, {}, 400)
    said = messages(client, job["id"])
    assert any(f"it will go on from step {saved}" in message for message in said), said
    assert any(f"resumed from step {saved}" in message for message in said), said
    assert losses(client, job["id"]) == losses(client, whole["id"])
    assert [step for step, _ in losses(client, job["id"])] == list(range(1, 401))


def test_a_drained_node_gives_its_run_back_and_is_held_empty(live: Service, client: Client, chat: str) -> None:
    job = client.submit(body(chat, name="drained", steps=3000, training=EVERY | {"logging_steps": 10}))
    live.wait_for(job["id"], "running", what=lambda job: job["step"] > 20)
    [node] = list(client.nodes())
    assert client.drain(node["name"], stop=True)["state"] == "draining"
    waiting = live.wait_for(job["id"], "queued")
    assert (waiting["faults"], waiting["not_before"]) == ({}, None)

    def state_of_node() -> str:
        return str(next(iter(client.nodes()))["state"])

    until(lambda: state_of_node() == "cordoned", "the node to be held empty")
    assert client.job(job["id"])["state"] == "queued", "nothing is placed on it"
    assert client.uncordon(node["name"])["state"] == "ready"
    live.wait_for(job["id"], "running", what=lambda job: job["attempt"] == 2)
    client.cancel(job["id"])
    until(lambda: client.job(job["id"])["state"] == "cancelled", "the job to be cancelled")


def test_a_job_at_its_time_limit_is_retried_from_its_checkpoint(live: Service, client: Client, chat: str) -> None:
    sent = body(chat, name="limited", steps=100_000, training={"logging_steps": 50, "lr_scheduler_type": "constant"})
    job = client.submit({**sent, "time_limit_s": 5})

    def ended() -> Json | None:
        now = client.job(job["id"])
        return now if now["state"] == "failed" else None

    failed = until(ended, "the time limit")
    assert failed["cause"]["code"] == "timeout"
    [checkpoint] = client.checkpoints(job["id"])
    with pytest.raises(ApiError) as refused:
        client.resume(job["id"])
    assert refused.value.code == "not_paused"
    again = client.retry(job["id"], "last")
    assert (again["time_limit_s"], again["continue_from"]["job"]) == (5, job["id"])
    live.wait_for(again["id"], "running", what=lambda job: job["step"] > checkpoint["step"])
    client.cancel(again["id"])
    until(lambda: client.job(again["id"])["state"] == "cancelled", "the job to be cancelled")
