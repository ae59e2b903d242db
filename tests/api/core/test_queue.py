"""Nudges arrive over files and over Redis, and a broker that is away neither raises nor holds anybody up."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kombu import Connection

from api.core import file_broker, queue
from api.core.queue import Sender, node_queue
from api.core.settings import Settings
from tests import servers

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(params=["files", pytest.param("redis", marks=pytest.mark.redis)])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    url = "" if request.param == "files" else request.getfixturevalue("redis_url")
    return Settings(data_dir=tmp_path, broker_url=url)


@contextmanager
def worker(settings: Settings, queues: str, output: Path) -> Iterator[None]:
    environment = os.environ | {
        "TRAINYARD_DATA_DIR": str(settings.data_dir),
        "TRAINYARD_BROKER_URL": settings.broker_url.get_secret_value(),
    }
    command = [sys.executable, "-m", "tests.api.core.nudged", str(output), queues]
    with (settings.data_dir / "worker.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def wait_for(output: Path, count: int, timeout_s: float = 60) -> list[list[str]]:
    give_up_at = time.monotonic() + timeout_s
    lines: list[str] = []
    while len(lines) < count and time.monotonic() < give_up_at:
        lines = output.read_text().splitlines() if output.exists() else []
        time.sleep(0.05)
    return [json.loads(line) for line in lines]


def test_nudges_arrive_at_their_queues(settings: Settings, tmp_path: Path) -> None:
    output = tmp_path / "nudges"
    queue.nudge_schedule(settings)
    queue.nudge_preflight("job_1", settings)
    queue.nudge_node("gpu1.example", settings)
    queue.nudge_stop("gpu1.example", "att_1", settings)
    queue.nudge_node("gpu2", settings)
    with worker(settings, f"{queue.CONTROL_QUEUE},{node_queue('gpu1.example')}", output):
        got = wait_for(output, 4)
    assert sorted(got) == [
        ["trainyard.preflight", "job_1"],
        ["trainyard.schedule"],
        ["trainyard.stop", "att_1"],
        ["trainyard.take_placements", "gpu1.example"],
    ]


@pytest.fixture(params=["closed", "mute"])
def url_of_nobody(request: pytest.FixtureRequest) -> Iterator[str]:
    """A port that refuses, and one that takes the connection and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        port = listener.getsockname()[1] if request.param == "mute" else 1
        yield f"redis://127.0.0.1:{port}/0"


def test_a_broker_that_is_away_neither_raises_nor_waits(
    tmp_path: Path, url_of_nobody: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock, url = [100.0], url_of_nobody
    sender = Sender(Settings(data_dir=tmp_path, broker_url=url), clock=lambda: clock[0])
    with caplog.at_level(logging.WARNING, logger="api.core.queue"):
        began_at = time.monotonic()
        assert not sender.send(queue.SCHEDULE, [], queue.CONTROL_QUEUE)
        assert time.monotonic() - began_at < 3  # about 1.4 s on an idle machine
        began_at = time.monotonic()
        assert not any(sender.send(queue.SCHEDULE, [], queue.CONTROL_QUEUE) for _ in range(1000))
        assert time.monotonic() - began_at < 0.5
        clock[0] += queue.PAUSE_AFTER_FAILURE_S
        assert not sender.send(queue.SCHEDULE, [], queue.CONTROL_QUEUE)
    assert len(caplog.records) == 1
    assert "work goes on" in caplog.text


def test_the_password_of_the_broker_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sender = Sender(Settings(data_dir=tmp_path, broker_url="redis://user:hush-hush@127.0.0.1:1/0"))
    sender.send(queue.SCHEDULE, [], queue.CONTROL_QUEUE)
    assert caplog.records
    assert "hush-hush" not in caplog.text


@pytest.mark.redis
def test_sending_works_again_when_the_broker_is_back(tmp_path: Path) -> None:
    clock = [0.0]
    port = servers.free_port()
    sender = Sender(Settings(data_dir=tmp_path, broker_url=f"redis://127.0.0.1:{port}/0"), clock=lambda: clock[0])
    assert not sender.send(queue.SCHEDULE, [], queue.CONTROL_QUEUE)
    try:
        with servers.redis_server(port):
            assert not sender.send(queue.SCHEDULE, [], queue.CONTROL_QUEUE)  # still in its pause
            clock[0] = queue.PAUSE_AFTER_FAILURE_S
            assert sender.send(queue.SCHEDULE, [], queue.CONTROL_QUEUE)
    except servers.Missing as missing:
        pytest.skip(str(missing))


def test_what_the_sweep_finds_again_and_again_is_sent_now_and_then(tmp_path: Path) -> None:
    clock = [0.0]
    sender = Sender(Settings(data_dir=tmp_path), clock=lambda: clock[0])
    sent = [sender.remind(queue.PREFLIGHT, ["job_1"], queue.CONTROL_QUEUE) for _ in range(3)]
    assert sent == [True, False, False]
    assert sender.remind(queue.PREFLIGHT, ["job_2"], queue.CONTROL_QUEUE)
    clock[0] = queue.REMIND_EVERY_S
    assert sender.remind(queue.PREFLIGHT, ["job_1"], queue.CONTROL_QUEUE)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("gpu1.example", "node.gpu1.example"), ("a/b c", "node.a-b-c"), ("../x", "node...-x")],
)
def test_queue_names_are_safe_in_file_names(name: str, expected: str) -> None:
    assert node_queue(name) == expected


def test_messages_that_nobody_takes_are_bounded_and_their_order_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_broker, "MAX_WAITING", 3)
    folders = {"data_folder_in": str(tmp_path), "data_folder_out": str(tmp_path), "control_folder": str(tmp_path / "c")}
    with Connection("filesystem://localhost", transport=file_broker.Transport, transport_options=folders) as connection:
        channel = connection.default_channel
        for number in range(5):
            channel._put("control", {"number": number})
            time.sleep(0.002)
        channel._put("node.a", {"number": 99})
        assert [channel._get("control")["number"] for _ in range(3)] == [0, 1, 2]
        assert [file.name for file in tmp_path.iterdir() if ".control." in file.name] == []
        assert channel._get("node.a") == {"number": 99}
