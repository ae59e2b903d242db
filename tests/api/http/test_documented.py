"""Every request in docs/api.md is run as it stands there, and its answer has the shape that is shown."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.testclient import TestClient

from api.app import create_app
from api.core import exports, nodes
from api.core.auth import add_key
from api.core.db import Database
from api.core.moves import NewEvent, move
from api.core.nodes import DeviceFact
from api.core.settings import Settings
from api.core.states import State
from api.core.storage import make_storage
from tests.api.files.conftest import make_artifact, make_checkpoint, put, set_best
from tests.api.http.answerer import Answerer
from tests.api.http.conftest import KEY
from tests.api.http.feeds import log, measure
from tests.conftest import REPOSITORY
from tests.tiny import make_tiny
from trainer_core.contract import ManifestFile

PAGE = REPOSITORY / "docs" / "api.md"
BLOCK = re.compile(r"^```(\w+)( setup)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REQUEST = re.compile(r"\$API(/[^\s\"?]*)")
IDS = {
    "ds_": "DATASET",
    "job_": "JOB",
    "whk_": "WEBHOOK",
    "whd_": "DELIVERY",
    "exp_": "EXPORT",
    "key_": "API_KEY",
    "swp_": "SWEEP",
}


@dataclass
class Example:
    """One `sh` block and the JSON that follows it, if any."""

    script: str
    expected: Any = None
    requests: list[tuple[str, str]] = field(default_factory=list)


def examples() -> list[Example]:
    found: list[Example] = []
    is_answer = False
    for kind, setup, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "sh" and not setup:
            found.append(Example(text, requests=requests_in(text)))
            is_answer = True
        elif kind == "json" and is_answer:
            found[-1].expected = json.loads(text)
            is_answer = False
    return found


def requests_in(script: str) -> list[tuple[str, str]]:
    named = re.search(r"-X (\w+)", script)
    method = named[1] if named else "POST" if re.search(r" -[dF] ", script) else "GET"
    return [(method, f"/v1{path}") for path in REQUEST.findall(script)]


@pytest.fixture
def service(tmp_path: Path, sqlite_url: str) -> Iterator[tuple[str, Database, Settings]]:
    settings = Settings(data_dir=tmp_path / "data", min_free_disk_bytes=0)
    database = Database(sqlite_url)
    with database.session() as session:
        add_key(session, "reader of the docs", key=KEY)
        nodes.register(session, "n1", [DeviceFact(index=0, kind="cpu", name="slot")], {}, {})
    answerer = Answerer(database)
    server = uvicorn.Server(uvicorn.Config(create_app(settings, database=database), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1", database, settings
    server.should_exit = True
    thread.join()
    answerer.close()
    database.close()


def test_every_example_runs_and_answers_as_shown(service: tuple[str, Database, Settings], tmp_path: Path) -> None:
    url, database, settings = service
    work = tmp_path / "work"
    work.mkdir()
    variables = {"API": url, "KEY": KEY, "MODEL": str(make_tiny(tmp_path / "model"))}
    for example in examples():
        answer = run(example, work, variables)
        for prefix, name in IDS.items():
            if isinstance(answer, dict) and str(answer.get("id", "")).startswith(prefix) and name not in variables:
                variables[name] = answer["id"]
                if name == "JOB":
                    leave_results(database, settings, answer["id"])
                if name == "EXPORT":
                    finish_export(database, settings)
        if example.expected is not None:
            compare(example.expected, answer, example.script)


def run(example: Example, work: Path, variables: dict[str, str]) -> Any:
    """The answer, parsed where it is JSON. curl fails on every status from 400 on."""
    script = example.script.replace("curl -sS", "curl --fail-with-body --max-time 20 -sS")
    command = ["bash", "-euo", "pipefail", "-c", script]
    environment = {"PATH": os.environ["PATH"], "no_proxy": "*", **variables}
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{example.script}\n{done.stdout}\n{done.stderr}"
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        assert example.expected is None, f"{example.script}\n{done.stdout}"
        return done.stdout


def leave_results(database: Database, settings: Settings, job_id: str) -> None:
    """The job checked, and what a run would have left."""
    with database.session() as session:
        assert move(session, job_id, State.QUEUED, NewEvent("queued", "Checked"))
    storage = make_storage(settings)
    measure(database, job_id, {"loss": 2.5}, {"loss": 2.0, "eval_loss": 2.2})
    log(database, job_id, "loading", "training")
    make_checkpoint(database, storage, job_id, 10, {"adapter_config.json": b'{"r":8}'}, adapter="lora")
    set_best(database, job_id, 10)
    make_artifact(database, storage, job_id, "all_results.json", b"{}")


def finish_export(database: Database, settings: Settings) -> None:
    """The export that waits, as its worker leaves it."""
    storage = make_storage(settings)
    with database.session() as session:
        row = exports.claim(session, "worker", 60.0)
        assert row is not None
        prefix = f"{exports.prefix_of(row)}/try-1"
        put(storage, f"{prefix}/config.json", b"{}")
        file = ManifestFile(path="config.json", size_bytes=2, sha256=hashlib.sha256(b"{}").hexdigest())
        proof = {"merged": {"difference": 1e-7, "allowed": 1e-5}}
        assert exports.succeed(session, row, "worker", [file], proof, prefix)


def compare(shown: Any, answered: Any, where: str) -> None:
    """Every key that is shown is answered, with a value of the same kind; numbers, ids and texts may differ."""
    if isinstance(shown, dict):
        assert isinstance(answered, dict), where
        assert set(shown) <= set(answered), f"{where}\nnot answered: {sorted(set(shown) - set(answered))}"
        for key, value in shown.items():
            compare(value, answered[key], f"{where}\n{key}")
    elif isinstance(shown, list):
        assert isinstance(answered, list), where
        assert bool(answered) or not shown, f"{where}: nothing was answered"
        for value, found in zip(shown, answered, strict=False):
            compare(value, found, where)
    elif shown is None or isinstance(shown, bool):
        assert shown == answered, f"{where}: {answered!r}"
    elif isinstance(shown, str):
        assert isinstance(answered, str), f"{where}: {answered!r}"
        assert "..." in shown or shown == answered, f"{where}: {answered!r}"
    else:
        assert isinstance(answered, int | float), f"{where}: {answered!r}"


def test_every_route_has_an_example(app: FastAPI, client: TestClient) -> None:
    documented = [request for example in examples() for request in example.requests]
    paths = client.get("/v1/openapi.json").json()["paths"]
    routes = [(method.upper(), path) for path in paths for method in paths[path] if path.startswith("/v1/")]
    assert len(routes) >= 20
    assert [route for route in routes if not any(is_example_of(route, request) for request in documented)] == []


def is_example_of(route: tuple[str, str], request: tuple[str, str]) -> bool:
    """Whether a documented request goes to the route; `path` and `name` may hold slashes."""
    pattern = re.sub(r"\{(\w+)\}", lambda found: ".+" if found[1] in ("path", "name") else "[^/]+", route[1])
    return route[0] == request[0] and re.fullmatch(pattern, request[1]) is not None
