"""The commands that ask something of a job or a node: which request each makes, and what it prints."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from trainyard import screen
from trainyard.cli import app
from trainyard.client import Client
from trainyard.commands import job_life, nodes

JOB = {"id": "job_1", "name": "a [bold] job", "state": "paused", "step": 3, "planned_steps": 9, "created_at": None}
NODE = {
    "name": "gpu-7",
    "state": "draining",
    "devices": [{"kind": "cuda", "index": 0, "name": "H200", "job_id": "job_1"}],
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """Every request that a command makes of a service that says yes to all."""
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        if request.url.path == "/v1/nodes":
            return httpx.Response(200, json={"data": [NODE], "has_more": False, "next": None})
        return httpx.Response(200, json=NODE if "/nodes/" in request.url.path else JOB)

    def connect() -> Client:
        client = Client("http://service", "ty-key")
        client._http.close()
        client._http = httpx.Client(base_url="http://service/v1", transport=httpx.MockTransport(answer))
        return client

    monkeypatch.setattr(job_life, "connect", connect)
    monkeypatch.setattr(nodes, "connect", connect)
    return requests


def body_of(request: httpx.Request) -> Any:
    return json.loads(request.content) if request.content else None


@pytest.mark.parametrize(
    ("arguments", "method", "path", "body"),
    [
        (["cancel", "job_1"], "POST", "/v1/jobs/job_1/cancel", None),
        (["pause", "job_1"], "POST", "/v1/jobs/job_1/pause", None),
        (["resume", "job_1"], "POST", "/v1/jobs/job_1/resume", None),
        (["retry", "job_1"], "POST", "/v1/jobs/job_1/retry", {"checkpoint": None}),
        (["retry", "job_1", "--from", "40"], "POST", "/v1/jobs/job_1/retry", {"checkpoint": "40"}),
        (
            ["clone", "job_1", "--set", "training.learning_rate=0.1", "--set", "notes=null"],
            "POST",
            "/v1/jobs/job_1/clone",
            {"training": {"learning_rate": 0.1}, "notes": None},
        ),
        (["priority", "job_1", "--", "-5"], "PATCH", "/v1/jobs/job_1", {"priority": -5}),
        (
            ["change", "job_1", "--set", "labels.team=a", "--set", "time_limit_s=60"],
            "PATCH",
            "/v1/jobs/job_1",
            {"labels": {"team": "a"}, "time_limit_s": 60},
        ),
        (["nodes", "drain", "gpu-7"], "POST", "/v1/nodes/gpu-7/drain?stop=false", None),
        (["nodes", "drain", "gpu-7", "--stop"], "POST", "/v1/nodes/gpu-7/drain?stop=true", None),
        (["nodes", "cordon", "gpu-7"], "POST", "/v1/nodes/gpu-7/cordon", None),
        (["nodes", "uncordon", "gpu-7"], "POST", "/v1/nodes/gpu-7/uncordon", None),
        (["nodes", "undrain", "gpu-7"], "POST", "/v1/nodes/gpu-7/uncordon", None),
        (["nodes"], "GET", "/v1/nodes", None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_each_command_makes_its_request(
    asked: list[httpx.Request], arguments: list[str], method: str, path: str, body: Any
) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    [request] = asked
    assert (request.method, request.url.raw_path.decode(), body_of(request)) == (method, path, body)


def test_a_key_makes_a_repeated_retry_or_clone_safe(asked: list[httpx.Request]) -> None:
    for command in ("retry", "clone"):
        CliRunner().invoke(app, [command, "job_1", "--idempotency-key", "k"])
    assert [request.headers["idempotency-key"] for request in asked] == ["k", "k"]


@pytest.mark.parametrize(
    "arguments",
    [["priority", "job_1", "high"], ["priority", "job_1", "1001"], ["change", "job_1"], ["pause"], ["nodes", "drain"]],
)
def test_a_mistyped_command_asks_for_nothing(asked: list[httpx.Request], arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2
    assert asked == []


def test_what_a_job_waits_for_is_shown_before_it_has_a_place_in_the_queue() -> None:
    held_back = {"queue_position": None, "waiting_reason": "waits for job_0"}
    assert screen.waiting_text(held_back) == "waits for job_0"
    assert screen.waiting_text({"queue_position": 2, "waiting_reason": "x"}) == "number 2 in the queue, x"
    assert screen.waiting_text({"queue_position": None, "waiting_reason": None}) is None
