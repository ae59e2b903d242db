"""A service that no other example has changed, and what examples call things."""

from __future__ import annotations

import doctest
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.live import chat_rows, write_rows
from tests.trainyard.service import KEY, add_dataset, add_job, leave_results, running, serving
from trainyard import Client

Prepared = tuple[Path, dict[str, Any]]


def prepare(folder: Path, database_file: Path) -> Prepared:
    """The folder of a service as every example finds it, and the names that examples use."""
    with serving(folder, database_file) as service:
        dataset_id = add_dataset(service)
        names = {"dataset_id": dataset_id, "queued_id": add_job(service, dataset_id, "waiting", is_over=False)}
        names["job_id"] = add_job(service, dataset_id, "done", is_over=True)
        leave_results(service, names["job_id"], {"adapter_config.json": b'{"r":8}'})
    return folder, names


@contextmanager
def fresh(prepared: Prepared, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A copy of the service, running; a client of it; and `folder`, with `rows.jsonl`, as the working folder."""
    shutil.copytree(prepared[0], folder / "yard")
    write_rows(folder / "rows.jsonl", chat_rows(20))
    monkeypatch.chdir(folder)
    with running(folder / "yard") as service, service.client() as client:
        monkeypatch.setenv("TRAINYARD_URL", service.url)
        monkeypatch.setenv("TRAINYARD_API_KEY", KEY)
        monkeypatch.setenv("TRAINYARD_DATA_DIR", str(folder / "yard" / "data"))
        yield client


def run_examples(text: str, name: str, names: dict[str, Any]) -> None:
    said: list[str] = []
    examples = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    assert doctest.DocTestRunner(verbose=False).run(examples, out=said.append, clear_globs=False).failed == 0, "".join(
        said
    )
    if (opened := examples.globs.get("client")) is not None:
        opened.close()
