"""Following a job that goes on: what comes is sent, once and in order, to however many; who leaves costs nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from api import follow
from api.core.db import Database
from api.deps import Parts
from api.follow import Follower
from api.wire import READERS
from tests.api.http.conftest import AUTH
from tests.api.http.feeds import Sent, end, log, measure, parse, say

STREAM = AUTH | {"Accept": "text/event-stream"}


@pytest.fixture
def live(app: FastAPI) -> Iterator[str]:
    """The service behind a real socket; its URL."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.01)


def test_what_comes_is_sent_until_the_job_is_over(live: str, job: dict[str, Any], database: Database) -> None:
    with httpx.stream("GET", f"{live}/v1/jobs/{job['id']}/events", headers=STREAM, timeout=10) as answer:
        sent = parse(answer.iter_lines())
        assert next(sent).data["kind"] == "created"
        say(database, job["id"], "one", "two")
        assert [next(sent).data["message"] for _ in range(2)] == ["one", "two"]
        say(database, job["id"], "three")
        assert next(sent).id == "4"
        end(database, job["id"])
        assert [one.name for one in sent] == ["event", "end"]


def test_who_leaves_is_forgotten(live: str, app: FastAPI, job: dict[str, Any]) -> None:
    parts: Parts = app.state.parts
    with httpx.stream("GET", f"{live}/v1/jobs/{job['id']}/logs", headers=STREAM, timeout=10):
        eventually(lambda: parts.follower.n_listeners == 1)
    eventually(lambda: parts.follower.n_listeners == 0)


# Many listeners at once, without sockets ------------------------------------------------------------------------------


async def collect(stream: AsyncIterator[bytes]) -> list[Sent]:
    text = b"".join([chunk async for chunk in stream]).decode()
    return list(parse(text.split("\n")))


def test_a_thousand_listeners_share_a_few_queries_and_no_threads(database: Database, job: dict[str, Any]) -> None:
    n_queries = 0

    def count(*_: Any) -> None:
        nonlocal n_queries
        n_queries += 1

    async def scenario() -> list[list[Sent]]:
        nonlocal n_queries
        follower = Follower(database, READERS, tick_s=0.02)
        n_known = follower_threads()
        tasks = [asyncio.create_task(collect(follower.stream("metric", job["id"], 0))) for _ in range(1000)]
        await asyncio.sleep(0.2)
        event.listen(database.engine, "before_cursor_execute", count)
        for n in range(10):
            await asyncio.to_thread(measure, database, job["id"], {"loss": float(n)})
            await asyncio.sleep(0.05)
        await asyncio.to_thread(end, database, job["id"])
        assert follower_threads() - n_known <= 12
        found = await asyncio.gather(*tasks)
        event.remove(database.engine, "before_cursor_execute", count)
        assert follower.n_listeners == 0
        return found

    found = asyncio.run(scenario())
    assert all([one.id for one in sent] == [*map(str, range(1, 11)), None] for sent in found)
    assert n_queries < 200  # the writes' own included; one query a listener and row would be 10,000


def follower_threads() -> int:
    return threading.active_count()


def test_listeners_at_different_places_get_everything_once(
    database: Database, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small pages and few kept frames, so that listeners fall behind and catch up from the database.
    monkeypatch.setattr(follow, "PAGE", 7)
    monkeypatch.setattr(follow, "KEPT_FRAMES", 10)

    async def slow(stream: AsyncIterator[bytes]) -> list[Sent]:
        chunks = []
        async for chunk in stream:
            chunks.append(chunk)
            await asyncio.sleep(0.03)
        return list(parse(b"".join(chunks).decode().split("\n")))

    async def scenario() -> list[list[Sent]]:
        follower = Follower(database, READERS, tick_s=0.01)
        starts = [0, 3, 25, 99]
        tasks = [asyncio.create_task(slow(follower.stream("log", job["id"], after))) for after in starts]
        for n in range(25):
            await asyncio.to_thread(log, database, job["id"], *(f"line {n}.{m}" for m in range(4)))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(log, database, job["id"], *(f"burst {n}" for n in range(50)))
        await asyncio.to_thread(end, database, job["id"])
        return await asyncio.gather(*tasks)

    for after, sent in zip([0, 3, 25, 99], asyncio.run(scenario()), strict=True):
        assert [one.id for one in sent] == [*map(str, range(after + 1, 151)), None]


def test_a_stream_outlives_a_database_that_is_away(
    database: Database, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    is_away = False
    look = Follower._cursors

    def cursors(self: Follower, job_ids: Any) -> Any:
        if is_away:
            raise OperationalError("select", {}, ConnectionError("away"))
        return look(self, job_ids)

    monkeypatch.setattr(Follower, "_cursors", cursors)

    async def scenario() -> list[Sent]:
        nonlocal is_away
        follower = Follower(database, READERS, tick_s=0.01)
        task = asyncio.create_task(collect(follower.stream("event", job["id"], 0)))
        await asyncio.sleep(0.1)
        is_away = True
        await asyncio.to_thread(say, database, job["id"], "while away")
        await asyncio.sleep(0.1)
        assert not task.done()
        is_away = False
        await asyncio.to_thread(end, database, job["id"])
        return await task

    assert [one.name for one in asyncio.run(scenario())] == ["event"] * 3 + ["end"]


def test_a_quiet_stream_is_kept_alive(database: Database, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "KEEPALIVE_S", 0.05)

    async def scenario() -> bytes:
        follower = Follower(database, READERS, tick_s=0.01)
        stream = follower.stream("event", job["id"], 1)
        chunk = await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        assert follower.n_listeners == 0
        return chunk

    assert asyncio.run(scenario()) == b": ping\n\n"


def test_closing_ends_every_stream_without_an_end(database: Database, job: dict[str, Any]) -> None:
    async def scenario() -> list[Sent]:
        follower = Follower(database, READERS, tick_s=0.01)
        task = asyncio.create_task(collect(follower.stream("event", job["id"], 0)))
        await asyncio.sleep(0.1)
        follower.close()
        return await asyncio.wait_for(task, 1)

    assert [one.name for one in asyncio.run(scenario())] == ["event"]
