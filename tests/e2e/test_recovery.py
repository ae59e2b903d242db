"""Ranks are killed, the service is restarted: the run goes on, and no step is lost or counted twice."""

from __future__ import annotations

import os
import re
import signal
import threading
import time

import pytest

from tests.live import Json, Service, body, environ, until
from trainyard import Client

pytestmark = [pytest.mark.train, pytest.mark.xdist_group("e2e")]


def train_steps(client: Client, job_id: str) -> list[int]:
    rows = client.metrics(job_id)
    return [row["step"] for row in rows if row["kind"] == "train" and "loss" in row["values"]]


def test_a_killed_run_goes_on_from_its_newest_checkpoint(live: Service, client: Client, chat: str) -> None:
    every = {"eval_steps": 100, "save_steps": 100}
    job = client.submit(body(chat, name="killed", steps=300, n_processes=2, training=every))
    live.wait_for(job["id"], "running", what=lambda job: job["best_step"] is not None and job["step"] > 110)
    ranks = [pid for pid in live.run_processes(job["id"]) if "\0LOCAL_RANK=" in environ(pid)]
    assert len(ranks) == 2
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
    done = live.wait_for(job["id"], "succeeded")
    assert done["attempt"] == 2
    assert done["step"] == done["planned_steps"] == 300
    said = "\n".join(event["message"] for event in client.events(job["id"]))
    resumed = re.search(r"resumed from step (\d+)", said)
    assert resumed, said
    assert int(resumed[1]) in (100, 200), "the newest checkpoint, not the start"
    assert train_steps(client, job["id"]) == list(range(1, 301))


def test_a_run_is_found_again_by_a_restarted_service(live: Service, client: Client, chat: str) -> None:
    spec = body(chat, name="found again", steps=1500, training={"eval_steps": 500, "save_steps": 500})
    command = live.typed("submit", live.job_file("found-again", spec), "--follow")
    job = until(lambda: next(client.jobs(name="found again"), None), "the job of the command")
    followed: list[Json] = []

    def follow() -> None:
        with live.client() as own:
            followed.extend(own.logs(job["id"], follow=True))

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    live.wait_for(job["id"], "running", what=lambda job: job["step"] > 20)
    live.stop()
    processes = live.run_processes(job["id"])
    assert processes, "the run outlives the service"
    time.sleep(1)  # it trains on with nobody to report to
    live.start()
    assert client.job(job["id"])["state"] == "running"
    assert set(processes) & set(live.run_processes(job["id"]))
    done = live.wait_for(job["id"], "succeeded")
    assert done["attempt"] == 1
    assert train_steps(client, job["id"]) == list(range(1, 1501))
    said, _ = command.communicate(timeout=60)
    assert command.returncode == 0, said
    assert said.count("Succeeded") == said.count("Created") == 1, said
    follower.join(30)
    assert not follower.is_alive()
    kept = list(client.logs(job["id"]))
    assert [line["n"] for line in followed] == [line["n"] for line in kept], "nothing lost, nothing doubled"
    assert followed == kept
