"""`trainyard sweep`: which request each command makes and what it prints; the example of the page is accepted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from api.core.sweep_specs import SweepSpec
from tests.conftest import REPOSITORY
from trainyard import screen
from trainyard.cli import app
from trainyard.client import Client
from trainyard.commands import sweeps

BEST = {
    "number": 1, "job_id": "job_2", "state": "succeeded", "values": {"adapter.r": 8}, "value": 0.5, "latest": 0.6,
    "is_best": True, "reason": None,
}  # fmt: skip
PRUNED = BEST | {"number": 0, "job_id": "job_1", "state": "pruned", "is_best": False, "reason": "pruned at step 3"}
SWEEP = {
    "id": "swp_1", "name": "a [bold] sweep", "state": "succeeded", "search": "grid", "n_trials": 2, "notes": [],
    "parameters": {"adapter.r": {"values": [4, 8]}}, "objective": {"metric": "eval_loss"}, "best": BEST, "cause": None,
    "counts": {"pruned": 1, "succeeded": 1, "made": 2, "to_come": 0, "retried": 0},
}  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        listed: dict[str, list[Any]] = {"/v1/sweeps": [SWEEP], "/v1/sweeps/swp_1/trials": [PRUNED, BEST]}
        if request.method == "GET" and request.url.path in listed:
            return httpx.Response(200, json={"data": listed[request.url.path], "has_more": False, "next": None})
        return httpx.Response(200, json=SWEEP)

    def connect() -> Client:
        client = Client("http://service", "ty-key")
        client._http.close()
        client._http = httpx.Client(base_url="http://service/v1", transport=httpx.MockTransport(answer))
        return client

    monkeypatch.setattr(sweeps, "connect", connect)
    monkeypatch.setattr(screen.out, "width", 200)
    return requests


def run(*arguments: str) -> str:
    with screen.out.capture() as printed:
        result = CliRunner().invoke(app, ["sweep", *arguments])
    assert result.exit_code == 0, result.output
    return printed.get() + result.stdout


def test_submit_sends_the_file_and_shows_the_trials(asked: list[httpx.Request], tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("name: a\njob: {model: tiny, dataset: {train: ds_1}}\nn_trials: 2\n")
    shown = run("submit", str(file), "--set", "n_trials=4", "--follow")
    assert (asked[0].method, asked[0].url.path) == ("POST", "/v1/sweeps")
    assert json.loads(asked[0].content)["n_trials"] == 4
    assert "a [bold] sweep" in shown
    assert "pruned at step 3" in shown
    assert "best: trial 1, eval_loss 0.5  adapter.r=8" in shown


def test_list_show_and_cancel(asked: list[httpx.Request]) -> None:
    assert "2/2" in run("list")
    assert json.loads(run("show", "swp_1", "--json"))["trials"] == [PRUNED, BEST]
    assert "swp_1 is succeeded" in run("cancel", "swp_1")
    assert (asked[-1].method, asked[-1].url.path) == ("POST", "/v1/sweeps/swp_1/cancel")


def test_the_example_of_the_page_is_a_sweep() -> None:
    text = (REPOSITORY / "docs" / "sweeps.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    spec = SweepSpec.model_validate(yaml.safe_load(example))
    assert (spec.search, spec.n_trials, spec.parameters["training.warmup_steps"].is_int) == ("tpe", 20, True)
    spaces = re.findall(r"^\| `(\{.*?\})` \|", text, re.MULTILINE)
    assert len(spaces) == 5
    for space in spaces:
        SweepSpec.model_validate({**yaml.safe_load(example), "parameters": {"adapter.r": yaml.safe_load(space)}})
