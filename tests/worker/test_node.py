"""A whole node: loops, Celery worker and runs, over files and over Redis, and what is left when they are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import redis as redis_client
from pydantic import SecretStr

from api.core import queue
from api.core.db import Database
from api.core.moves import request_cancel
from api.core.settings import Settings
from api.core.states import State
from tests import servers
from tests.worker.conftest import end_everything
from tests.worker.world import World, short_settings, wait_for
from worker.detach import environ_of

FAKE_NODE = Path(__file__).with_name("fake_node.py")


@contextmanager
def node(settings: Settings, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    """A node's process; its whole tree is killed in the end."""
    with open(settings.data_dir / "node.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(FAKE_NODE), *argv],
            env=environ_of(settings, os.environ),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill_tree(process)


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        top = psutil.Process(process.pid)
        for one in [*top.children(recursive=True), top]:
            one.kill()
        process.wait()


@contextmanager
def world_on(broker: str, sqlite_url: str, data_dir: Path) -> Iterator[World]:
    db = Database(sqlite_url)
    # The loops look rarely: what is quick here came by a message.
    settings = short_settings(data_dir, sqlite_url, broker_url=SecretStr(broker), look_every_s=0.5)
    world = World(db, settings)
    yield world
    end_everything(world)
    db.close()


@pytest.fixture(params=["files", pytest.param("redis", marks=pytest.mark.redis)])
def broker_world(request: pytest.FixtureRequest, sqlite_url: str, data_dir: Path) -> Iterator[World]:
    broker = request.getfixturevalue("redis_url") if request.param == "redis" else ""
    with world_on(broker, sqlite_url, data_dir) as world:
        yield world


def submit(world: World, steps: int, **fake: object) -> str:
    report = {"ok": True, "planned_steps": steps, "n_train_rows": 3}
    job_id = world.submit(state=State.VALIDATING, fake_preflight=report, fake={"steps": steps, **fake})
    queue.nudge_preflight(job_id, world.settings)
    return job_id


def test_a_job_goes_from_validating_to_succeeded_and_a_node_leaves_quickly(broker_world: World) -> None:
    world = broker_world
    with node(world.settings, "run") as process:
        first = submit(world, steps=5)
        world.wait_until(first, State.SUCCEEDED)
        second = submit(world, steps=200, step_s=0.03, save_every=50)
        world.wait_for_step(second, 3)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert time.monotonic() - began < 5
    step = world.job(second).step
    wait_for(lambda: world.job(second).step > step + 5, "the run to go on without its node")
    with world.db.session() as session:
        request_cancel(session, second)
    world.wait_until(second, State.CANCELLED)


def test_celery_alone_brings_a_job_all_the_way(broker_world: World) -> None:
    world = broker_world
    with node(world.settings, "celery"):
        job_id = submit(world, steps=5)
        world.wait_until(job_id, State.SUCCEEDED)
    assert len(world.events(job_id, "launched")) == 1


def test_the_celery_worker_is_started_again(sqlite_url: str, data_dir: Path) -> None:
    with world_on("", sqlite_url, data_dir) as world, node(world.settings, "run") as process:
        top = psutil.Process(process.pid)
        first = wait_for(top.children, "the Celery worker")[0]
        first.kill()
        wait_for(lambda: [one for one in top.children() if one.pid != first.pid], "another one")


@pytest.mark.redis
def test_two_celery_workers_and_a_short_visibility_timeout_run_a_job_once(
    redis_url: str, sqlite_url: str, data_dir: Path
) -> None:
    with world_on(redis_url, sqlite_url, data_dir) as world, node(world.settings, "celery", "1"):
        job_id = submit(world, steps=60, step_s=0.1, save_every=30)
        world.wait_for_step(job_id, 2)
        with node(world.settings, "celery", "1"):
            for _ in range(3):  # doubled on top of whatever is handed out again
                queue.nudge_node(world.settings.node_name, world.settings)
                queue.nudge_preflight(job_id, world.settings)
            world.wait_until(job_id, State.SUCCEEDED)
        assert len(world.events(job_id, "launched")) == 1
        assert len(world.events(job_id, "started")) == 1
        assert len(world.events(job_id, "queued")) == 1
        assert world.job(job_id).attempt == 1
        assert world.steps(job_id) == list(range(1, 61))


@pytest.mark.redis
def test_the_whole_worker_tree_and_redis_killed_leave_the_run_alone(sqlite_url: str, data_dir: Path) -> None:
    with servers.redis_server() as url, world_on(url, sqlite_url, data_dir) as world:
        redis = psutil.Process(server_pid(url))
        with node(world.settings, "run") as process:
            job_id = submit(world, steps=100, step_s=0.05, save_every=40)
            world.wait_for_step(job_id, 3)
            redis.kill()
            kill_tree(process)
        step = world.job(job_id).step
        wait_for(lambda: world.job(job_id).step > step + 3, "the run to go on")
        with node(world.settings, "run"):  # and what comes back needs no Redis to find it
            world.wait_until(job_id, State.SUCCEEDED)
        assert world.steps(job_id) == list(range(1, 101))
        assert world.job(job_id).attempt == 1


def server_pid(url: str) -> int:
    client = redis_client.Redis.from_url(url)
    pid = int(client.info("server")["process_id"])
    client.close()
    return pid


def test_a_node_that_lost_its_power_leaves_no_job_running_for_ever(sqlite_url: str, data_dir: Path) -> None:
    with world_on("", sqlite_url, data_dir) as world:
        with node(world.settings, "run") as process:
            job_id = submit(world, steps=10_000, step_s=0.05)
            world.wait_for_step(job_id, 3)
            attempt_id = wait_for(lambda: world.attempts(job_id), "an attempt")[0]
            kill_tree(process)
        everything = [world.supervisor(attempt_id), world.leader(attempt_id), *world.processes(attempt_id)]
        for one in everything:
            os.kill(one.pid, signal.SIGKILL)
        # The machine is back: its node finds what it had, and says why the run ended.
        with node(world.settings, "run"):
            wait_for(lambda: world.events(job_id, "requeued"), "the job to be queued again", 15)
        assert "killed from outside" in world.events(job_id, "requeued")[0].message
