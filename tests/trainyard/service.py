"""The API alone over a socket, with a dataset, a job that is over and one that waits: what a client can be tried on."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from api.app import create_app
from api.core import nodes, queue
from api.core.db import Database
from api.core.moves import NewEvent, move
from api.core.nodes import DeviceFact
from api.core.settings import Settings
from api.core.states import State
from api.core.storage import make_storage
from tests.api.files.conftest import make_artifact, make_checkpoint, set_best
from tests.api.http.feeds import log, measure
from tests.live import chat_rows, write_rows
from tests.tiny import make_tiny
from trainyard import Client

KEY = "ty-" + "c" * 40
PATH = (State.QUEUED, State.STARTING, State.RUNNING, State.SUCCEEDED)


@dataclass
class ApiService:
    """One API over `port`; it may be stopped and started again."""

    folder: Path
    database: Database
    settings: Settings
    port: int = 0

    def start(self) -> None:
        app = create_app(self.settings, database=self.database, tick_s=0.02)
        listening = socket.create_server(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._follower = app.state.parts.follower
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]})
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the server did not start"
            time.sleep(0.01)

    def stop(self) -> None:
        """As a restart does: open streams are cut."""
        self._follower.close()
        self._server.should_exit = True
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> Client:
        return Client(self.url, KEY)


@contextmanager
def serving(folder: Path, database_file: Path) -> Iterator[ApiService]:
    """The service on a migrated database of its own in `folder`: a node `n1`, a model `tiny`, one admin key."""
    settings = Settings(data_dir=folder / "data", min_free_disk_bytes=0)
    settings.data_dir.mkdir()
    settings.key_file.write_text(KEY)
    shutil.copy(database_file, settings.data_dir / "trainyard.db")
    with running(folder) as service:
        with service.database.session() as session:
            nodes.register(session, "n1", [DeviceFact(index=0, kind="cpu", name="slot")], {}, {})
        with service.client() as client:
            client.add_model("tiny", str(make_tiny(folder / "model")))
        yield service


@contextmanager
def running(folder: Path) -> Iterator[ApiService]:
    """The service over what `serving` left in the folder, or in a copy of it. Nothing is sent to a queue."""
    settings = Settings(data_dir=folder / "data", min_free_disk_bytes=0)
    database = Database(settings.database)
    send, queue._send = queue._send, lambda *_: True
    service = ApiService(folder, database, settings)
    service.start()
    try:
        yield service
    finally:
        service.stop()
        queue._send = send
        database.close()


def add_dataset(service: ApiService) -> str:
    with service.client() as client:
        return client.push_dataset(write_rows(service.folder / "chat.jsonl", chat_rows(20)))["id"]


def add_job(service: ApiService, dataset_id: str, name: str, *, is_over: bool) -> str:
    """A job that is queued, or one that has succeeded and left a checkpoint, two metrics and two log lines."""
    with service.client() as client:
        job_id = client.submit({"name": name, "model": "tiny", "dataset": {"train": dataset_id}}).id
    reach(service.database, job_id, PATH if is_over else PATH[:1])
    return job_id


def leave_results(service: ApiService, job_id: str, files: dict[str, bytes]) -> None:
    storage = make_storage(service.settings)
    measure(service.database, job_id, {"loss": 2.5}, {"loss": 2.0})
    log(service.database, job_id, "loading", "training")
    make_checkpoint(service.database, storage, job_id, 10, files, adapter="lora")
    set_best(service.database, job_id, 10)
    make_artifact(service.database, storage, job_id, "all_results.json", b"{}")


def reach(database: Database, job_id: str, states: tuple[State, ...]) -> None:
    for state in states:
        with database.session() as session:
            assert move(session, job_id, state, NewEvent(state.value, state.value.capitalize()))
