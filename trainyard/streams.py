"""Server-sent events as an iterator that reconnects by itself and never yields an item twice."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator
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


class Parser:
    """Events out of the lines of a text/event-stream body (HTML standard, section 9.2.6), line by line."""

    def __init__(self) -> None:
        self._name = "message"
        self._id: str | None = None
        self._data: list[str] = []

    def take(self, line: str) -> ServerEvent | None:
        """The event that this line ends, if it ends one."""
        if not line:
            event = ServerEvent(self._name, self._id, "\n".join(self._data)) if self._data else None
            self._name, self._data = "message", []
            return event
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id":
            self._id = value
        return None


def parse(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """All events of a body."""
    parser = Parser()
    for line in lines:
        if (event := parser.take(line)) is not None:
            yield event


class Place:
    """How far a stream was followed, and for how long it has been silent: it goes on there on a new connection."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.is_over = False
        self._silent_since: float | None = None

    def request(self) -> dict[str, Any]:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(self.after)}
        return {"headers": headers, "timeout": httpx.Timeout(10.0, read=READ_TIMEOUT_S)}

    def take(self, event: ServerEvent) -> list[dict[str, Any]]:
        """The item of an event: one, or none at the end."""
        self._silent_since = None
        if event.name == "end":
            self.is_over = True
            return []
        if event.id is not None:
            self.after = int(event.id)
        return [json.loads(event.data)]

    def cut(self, error: Exception) -> None:
        """The line broke. Raises ConnectionFailed when nothing has come for PATIENCE_S."""
        self._silent_since = self._silent_since or time.monotonic()
        if time.monotonic() - self._silent_since > PATIENCE_S:
            raise ConnectionFailed(f"the service has not answered for {PATIENCE_S:.0f} s: {error}") from error


def follow(
    http: httpx.Client, path: str, *, after: int = 0, params: dict[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Items of a job's events, metrics or logs from `after` on, until the service says `end`.

    Reconnects with Last-Event-ID after a cut line or a restart; raises ConnectionFailed after PATIENCE_S of silence.
    """
    place = Place(after)
    while True:
        try:
            with http.stream("GET", path, params=params, **place.request()) as response:
                _look_at(response)
                for event in parse(response.iter_lines()):
                    yield from place.take(event)
                    if place.is_over:
                        return
        except (httpx.TransportError, _Unavailable) as error:
            place.cut(error)
        time.sleep(LOOK_AGAIN_AFTER_S)


async def follow_async(http: httpx.AsyncClient, path: str, *, after: int = 0) -> AsyncIterator[dict[str, Any]]:
    """The same, awaited."""
    place = Place(after)
    while True:
        try:
            async with http.stream("GET", path, **place.request()) as response:
                _look_at(response)
                parser = Parser()
                async for line in response.aiter_lines():
                    event = parser.take(line)
                    for item in place.take(event) if event else ():
                        yield item
                    if place.is_over:
                        return
        except (httpx.TransportError, _Unavailable) as error:
            place.cut(error)
        await asyncio.sleep(LOOK_AGAIN_AFTER_S)


class _Unavailable(Exception):
    """The service answered 502, 503 or 504: it, or a proxy before it, is coming up."""


def _look_at(response: httpx.Response) -> None:
    if response.status_code in AWAY:
        raise _Unavailable(f"HTTP {response.status_code}")
    response.raise_for_status()
