"""Server-sent events as an iterator that reconnects by itself and never yields an item twice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from trainyard.errors import ConnectionFailed
from trainyard.patience import AWAY, LOOK_AGAIN_AFTER_S, PATIENCE_S

READ_TIMEOUT_S = 60.0  # the service sends a keep-alive every 15 s; four missed ones mean the line is dead


@dataclass(frozen=True)
class ServerEvent:
    name: str
    id: str | None
    data: str


def parse(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """Events from the lines of a text/event-stream body (HTML standard, section 9.2.6)."""
    name, event_id = "message", None
    data: list[str] = []
    for line in lines:
        if not line:
            if data:
                yield ServerEvent(name, event_id, "\n".join(data))
            name, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            event_id = value


def follow(
    http: httpx.Client, path: str, *, after: int = 0, params: dict[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Items of a job's events, metrics or logs from `after` on, until the service says `end`.

    Reconnects with Last-Event-ID after a cut line or a restart; raises ConnectionFailed after PATIENCE_S of silence.
    """
    silent_since: float | None = None
    while True:
        try:
            for event in _one_connection(http, path, after, params):
                silent_since = None
                if event.name == "end":
                    return
                if event.id is not None:
                    after = int(event.id)
                yield json.loads(event.data)
        except (httpx.TransportError, _Unavailable) as error:
            silent_since = silent_since or time.monotonic()
            if time.monotonic() - silent_since > PATIENCE_S:
                raise ConnectionFailed(f"the service has not answered for {PATIENCE_S:.0f} s: {error}") from error
        time.sleep(LOOK_AGAIN_AFTER_S)


class _Unavailable(Exception):
    """The service answered 502, 503 or 504: it, or a proxy before it, is coming up."""


def _one_connection(http: httpx.Client, path: str, after: int, params: dict[str, Any] | None) -> Iterator[ServerEvent]:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
    timeout = httpx.Timeout(10.0, read=READ_TIMEOUT_S)
    with http.stream("GET", path, params=params, headers=headers, timeout=timeout) as response:
        if response.status_code in AWAY:
            raise _Unavailable(f"HTTP {response.status_code}")
        if response.is_error:
            response.read()
        response.raise_for_status()
        yield from parse(response.iter_lines())
