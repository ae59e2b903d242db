"""`keys`, `open`, `run` as they are typed, against a service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.trainyard.service import KEY, ApiService, serving
from trainyard import ApiError
from trainyard.cli import app


@pytest.fixture
def service(tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiService]:
    with serving(tmp_path, sqlite_template) as service:
        monkeypatch.setenv("TRAINYARD_URL", service.url)
        monkeypatch.setenv("TRAINYARD_API_KEY", KEY)
        yield service


def test_a_key_is_made_used_and_revoked(service: ApiService) -> None:
    run = CliRunner().invoke
    made = run(app, ["keys", "create", "board", "--permission", "jobs:read"])
    assert made.exit_code == 0, made.output
    secret = made.stdout.strip()
    assert run(app, ["--api-key", secret, "jobs", "--json"]).stdout.strip() == "[]"
    refused = run(app, ["--api-key", secret, "keys", "list"])
    assert isinstance(refused.exception, ApiError)
    assert refused.exception.status == 403
    listed = json.loads(run(app, ["keys", "list", "--json"]).stdout)
    [key] = [key for key in listed if key["name"] == "board"]
    assert secret not in str(listed)
    assert json.loads(run(app, ["keys", "revoke", key["id"], "--json"]).stdout)["state"] == "revoked"
    gone = run(app, ["--api-key", secret, "jobs"])
    assert isinstance(gone.exception, ApiError)
    assert gone.exception.status == 401


def test_the_link_to_a_job_is_printed(service: ApiService) -> None:
    run = CliRunner().invoke
    assert run(app, ["open", "--print"]).stdout.strip() == f"{service.url}/jobs"
    assert json.loads(run(app, ["open", "--json"]).stdout) == {"url": f"{service.url}/jobs"}
    missing = run(app, ["open", "job_none"])
    assert isinstance(missing.exception, ApiError)
