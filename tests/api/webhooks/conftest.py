"""A receiver on loopback that remembers what it was sent, and a service that may send there."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from api.core import webhooks
from api.core.db import Database
from api.core.settings import Settings
from api.core.webhook_messages import Format
from api.core.webhook_tables import WebhookDelivery


@dataclass
class Got:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """Answers what `statuses` says, in turn; 200 once they are used up."""

    port: int
    got: list[Got] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?x=1"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.got.append(Got(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(state.statuses.pop(0) if state.statuses else 200)
            self.send_header("Location", f"http://127.0.0.1:{state.port}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Receiver(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", min_free_disk_bytes=0, webhook_private_targets=True)


def add(
    database: Database, settings: Settings, url: str, form: Format = Format.STANDARD, events: list[str] | None = None
) -> tuple[str, str]:
    """(id, secret) of a new webhook."""
    with database.session() as session:
        endpoint, secret = webhooks.create(session, "hook", url, form, events, "key", settings)
        return endpoint.id, secret


def log_of(database: Database, endpoint_id: str) -> list[WebhookDelivery]:
    """Oldest first."""
    with database.reading() as session:
        query = select(WebhookDelivery).where(WebhookDelivery.endpoint_id == endpoint_id)
        return list(session.scalars(query.order_by(WebhookDelivery.created_at, WebhookDelivery.id)))
