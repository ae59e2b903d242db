"""Following survives a cut line and a restart, and never yields an item twice."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from trainyard import streams
from trainyard.errors import ConnectionFailed


def test_events_are_parsed_by_the_standard() -> None:
    lines = [": keep-alive", "", "event: metric", "id: 7", 'data: {"a":', "data: 1}", "", "data: x", "", "data: torn"]
    assert list(streams.parse(lines)) == [
        streams.ServerEvent("metric", "7", '{"a":\n1}'),
        streams.ServerEvent("message", "7", "x"),
    ]


class Cut(httpx.SyncByteStream):
    """A body that breaks off."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __iter__(self) -> Iterator[bytes]:
        yield self.text.encode()
        raise httpx.ReadError("cut")


def item(n: int) -> str:
    return f'event: event\nid: {n}\ndata: {{"n": {n}}}\n\n'


def test_a_cut_stream_goes_on_after_the_last_item(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams.time, "sleep", lambda _s: None)
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["last-event-id"])
        if len(asked) == 1:
            return httpx.Response(200, stream=Cut(item(1) + item(2)))
        if len(asked) == 2:
            return httpx.Response(503)
        return httpx.Response(200, text=item(3) + "event: end\ndata: {}\n\n")

    http = httpx.Client(transport=httpx.MockTransport(answer), base_url="http://service")
    assert [found["n"] for found in streams.follow(http, "/jobs/x/events")] == [1, 2, 3]
    assert asked == ["0", "2", "2"]


def test_following_gives_up_after_long_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 50))
    monkeypatch.setattr(streams.time, "sleep", lambda _s: None)
    monkeypatch.setattr(streams.time, "monotonic", lambda: float(next(clock)))

    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    http = httpx.Client(transport=httpx.MockTransport(answer), base_url="http://service")
    with pytest.raises(ConnectionFailed, match="120 s"):
        list(streams.follow(http, "/jobs/x/events"))
