"""The examples in the client's docstrings run as they stand there, each against a fresh service."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.trainyard.examples import Prepared, fresh, prepare, run_examples
from trainyard import AsyncClient, Client
from trainyard import client as client_module
from trainyard.calls import Route
from trainyard.routes.sweeps import SweepRoutes

ROUTES = {name: route for kind in Client.__mro__ for name, route in vars(kind).items() if isinstance(route, Route)}
# Another example's end, or a network; sweeps have tests of their own.
WITHOUT = {"download_export", "delete_webhook", "test_webhook", "deliveries", *vars(SweepRoutes)} & set(ROUTES)


Run = Callable[[str, str], None]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Prepared:
    return prepare(tmp_path_factory.mktemp("examples"), sqlite_template)


@pytest.fixture
def run(prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    with fresh(prepared, tmp_path, monkeypatch) as client:
        yield lambda text, name: run_examples(text, name, {"client": client, **prepared[1]})


def test_every_method_has_an_example() -> None:
    assert {name for name, route in ROUTES.items() if ">>>" not in (route.__doc__ or "")} == WITHOUT


@pytest.mark.parametrize("name", [name for name in ROUTES if name not in WITHOUT])
def test_the_example_of(name: str, run: Run) -> None:
    run(ROUTES[name].__doc__ or "", name)


def test_the_example_of_the_module(run: Run) -> None:
    run(client_module.__doc__ or "", "client")


def test_both_clients_have_the_same_routes() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(Client) - {"close"} == public(AsyncClient) - {"aclose"}
    assert len(ROUTES) > 40


def blocks(page: str, kind: str) -> list[tuple[str, str]]:
    """(what stands after the kind, text) of a page's blocks of one kind."""
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{kind} ?(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE)


def test_the_page_about_the_client(run: Run) -> None:
    texts = [text for _, text in blocks("client.md", "python")]
    assert len(texts) >= 5
    run("\n".join(texts), "client.md")


def test_the_page_about_the_command(prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command on the page ends well; the schema it writes knows the file it shows."""
    names = {"JOB": prepared[1]["job_id"]}
    scripts = Path(sys.executable).parent
    with fresh(prepared, tmp_path, monkeypatch):
        for name, text in blocks("cli.md", "yaml"):
            Path(name).write_text(text)
        env = os.environ | names | {"PATH": f"{scripts}:{os.environ['PATH']}", "COLUMNS": "200"}
        commands = [line for _, text in blocks("cli.md", "sh") for line in text.splitlines()]
        assert len(commands) > 15
        for command in commands:
            done = subprocess.run(
                ["bash", "-c", command], env=env, capture_output=True, text=True, timeout=120, check=False
            )
            is_doctor = "doctor" in command  # nothing of the machine that runs the tests is promised
            assert done.returncode == 0 or is_doctor, f"{command}\n{done.stdout}\n{done.stderr}"
            assert "Traceback" not in done.stderr
            if "--json" in command and "metrics" not in command:
                json.loads(done.stdout)
        assert "training" in json.loads(Path("job.schema.json").read_text())["properties"]
        assert (tmp_path / "tuned" / "adapter_config.json").exists()
