"""Fixtures of the tests that hold the service against faults of the field.

Requests go to a whole service in this process (the fixtures of tests/api), runs to a live service with real training.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.files.conftest import nothing_left, upload
from tests.api.http.conftest import app, body, client, dataset, job, sent, settings
from tests.live import Service, chat_rows, running, write_rows
from trainyard import Client

__all__ = ["app", "body", "client", "dataset", "job", "nothing_left", "sent", "settings", "upload"]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: what differs between them has its tests in tests/api."""
    return sqlite_url


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("cases")) as service:
        yield service


@pytest.fixture
def trainyard(live: Service) -> Iterator[Client]:
    with live.client() as client:
        yield client


@pytest.fixture(scope="session")
def chat(live: Service) -> str:
    """Id of a dataset of 40 short conversations."""
    with live.client() as client:
        return str(client.push_dataset(write_rows(live.folder / "chat.jsonl", chat_rows(40)))["id"])
