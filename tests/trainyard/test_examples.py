"""The examples in the client's docstrings run as they stand there, each against a fresh service."""

from __future__ import annotations

import doctest
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live import chat_rows, write_rows
from tests.trainyard.service import KEY, add_dataset, add_job, leave_results, running, serving
from trainyard import AsyncClient, Client
from trainyard import client as client_module
from trainyard.calls import Route

ROUTES = {name: route for kind in Client.__mro__ for name, route in vars(kind).items() if isinstance(route, Route)}
WITHOUT = {"download_export", "delete_webhook", "test_webhook", "deliveries"}  # another example's end, or a network


Run = Callable[[str, str], None]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> tuple[Path, dict[str, Any]]:
    """The folder of a service as every example finds it, and the names that examples use."""
    folder = tmp_path_factory.mktemp("examples")
    with serving(folder, sqlite_template) as service:
        dataset_id = add_dataset(service)
        names = {"dataset_id": dataset_id, "queued_id": add_job(service, dataset_id, "waiting", is_over=False)}
        names["job_id"] = add_job(service, dataset_id, "done", is_over=True)
        leave_results(service, names["job_id"], {"adapter_config.json": b'{"r":8}'})
    return folder, names


@pytest.fixture
def run(prepared: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs the examples of a text in a folder of their own, against a service that no other example has changed."""
    made, names = prepared
    shutil.copytree(made, tmp_path / "yard")
    write_rows(tmp_path / "rows.jsonl", chat_rows(20))
    monkeypatch.chdir(tmp_path)
    with running(tmp_path / "yard") as service, service.client() as client:
        monkeypatch.setenv("TRAINYARD_URL", service.url)
        monkeypatch.setenv("TRAINYARD_API_KEY", KEY)

        def run(text: str, name: str) -> None:
            said: list[str] = []
            examples = doctest.DocTestParser().get_doctest(text, {"client": client, **names}, name, None, 0)
            assert doctest.DocTestRunner(verbose=False).run(examples, out=said.append).failed == 0, "".join(said)

        yield run


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
