"""The official client, unchanged but for its address and key, against a live server; jobs are moved by the core."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import uvicorn

from api.app import create_app
from api.core import nodes, queue
from api.core.auth import add_key
from api.core.db import Database
from api.core.ids import new_id
from api.core.nodes import DeviceFact
from api.core.settings import Settings
from api.core.storage import Storage, make_storage
from api.core.tables import BaseModel

KEY = "ty-" + "o" * 40


class Service:
    """A server on a port of its own, and what is behind it."""

    def __init__(self, url: str, database: Database, storage: Storage, settings: Settings) -> None:
        self.url = url
        self.database = database
        self.storage = storage
        self.settings = settings

    def client(self, key: str = KEY, **options: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/openai/v1", api_key=key, _strict_response_validation=True, **options)


@pytest.fixture
def service(tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(queue, "_send", lambda *_: True)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    settings = Settings(data_dir=tmp_path / "data", min_free_disk_bytes=0)
    database = Database(sqlite_url)
    with database.session() as session:
        add_key(session, "reader", key=KEY)
        session.add(BaseModel(id=new_id("model"), name="org/tiny", source="/models/tiny", details={}))
        nodes.register(session, "n1", [DeviceFact(index=0, kind="cpu", name="slot")], {}, {})
    storage = make_storage(settings)
    app = create_app(settings, database=database, storage=storage)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield Service(f"http://127.0.0.1:{port}", database, storage, settings)
    server.should_exit = True
    thread.join()
    database.close()


@pytest.fixture
def client(service: Service) -> Iterator[openai.OpenAI]:
    with service.client(max_retries=0) as client:
        yield client


def rows(n: int = 4) -> bytes:
    lines = [
        {"messages": [{"role": "user", "content": f"Say {i}"}, {"role": "assistant", "content": f"It is {i}."}]}
        for i in range(n)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


@pytest.fixture
def train(client: openai.OpenAI) -> str:
    """The id of a file with 40 rows."""
    return client.files.create(file=("train.jsonl", rows(40)), purpose="fine-tune").id


@pytest.fixture
def create(client: openai.OpenAI, train: str) -> Callable[..., Any]:
    def make(**changes: Any) -> Any:
        return client.fine_tuning.jobs.create(**{"model": "org/tiny", "training_file": train} | changes)

    return make
