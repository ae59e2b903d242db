"""Following jobs: one small query a tick for all followed jobs together, shared by every listener in this process.

A listener at the live end takes ready-made frames from its channel; one that is behind reads pages until it is there.
Nothing here holds a thread while it waits.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from api.core.db import Database
from api.core.states import TERMINAL
from api.core.tables import Job

log = logging.getLogger(__name__)

Item = dict[str, Any]
ReadPage = Callable[[Session, str, int, int], Sequence[Item]]
Keep = Callable[[Item], bool]

TICK_S = 0.25
KEEPALIVE_S = 15.0
PAGE = 500
KEPT_FRAMES = 2000


@dataclass(eq=False)
class Channel:
    """One job's events, metrics or logs. `head` is the cursor of the newest row known to exist."""

    job_id: str
    kind: str
    head: int = 0
    is_known: bool = False
    is_over: bool = False
    is_dropped: bool = False
    n_listeners: int = 0
    frames: deque[tuple[int, Item, bytes]] = field(default_factory=lambda: deque(maxlen=KEPT_FRAMES))
    covers_from: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, items: Sequence[Item], head: int, *, is_over: bool) -> None:
        """New rows, and whether they were the last: wakes every listener if anything changed."""
        for item in items:
            if len(self.frames) == KEPT_FRAMES:
                self.covers_from = self.frames[0][0]
            self.frames.append((item["n"], item, frame(self.kind, item)))
        if items or is_over != self.is_over or not self.is_known or head != self.head:
            self.head, self.is_over, self.is_known = head, is_over, True
            self.wake()

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def since(self, after: int) -> list[tuple[int, Item, bytes]] | None:
        """Frames after a cursor; None when they reach back further than what is kept."""
        if after < self.covers_from:
            return None
        return [entry for entry in self.frames if entry[0] > after]


def frame(kind: str, item: Item) -> bytes:
    """One server-sent event: event name, id, the same JSON as in pages."""
    text = json.dumps(item, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return format_sse_event(data_str=text, event=kind, id=str(item["n"]))


class Follower:
    """Watches the jobs that somebody follows. `readers` maps event, metric and log to what reads a page of them."""

    def __init__(self, database: Database, readers: Mapping[str, ReadPage], *, tick_s: float = TICK_S) -> None:
        self._database = database
        self._readers = readers
        self._tick_s = tick_s
        self._channels: dict[tuple[str, str], Channel] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def n_listeners(self) -> int:
        return sum(channel.n_listeners for channel in self._channels.values())

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """End every stream now, without an `end` event: clients come back with Last-Event-ID."""
        self._is_closed = True
        for channel in self._channels.values():
            channel.wake()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def stream(self, kind: str, job_id: str, after: int, keep: Keep | None = None) -> AsyncIterator[bytes]:
        """Frames after a cursor, for ever, until the job is over and all was sent (then `end`) or the client leaves."""
        channel = self._join(kind, job_id)
        try:
            while not (self._is_closed or channel.is_dropped):
                changed = channel.changed
                if channel.is_known and after < channel.head:
                    frames, after = await self._next(channel, after, keep)
                    for chunk in frames:
                        yield chunk
                elif channel.is_known and channel.is_over:
                    yield format_sse_event(data_str=json.dumps({"job_id": job_id, "n": after}), event="end")
                    return
                elif not await _within(changed, KEEPALIVE_S):
                    yield KEEPALIVE_COMMENT
        finally:
            self._leave(channel)

    async def _next(self, channel: Channel, after: int, keep: Keep | None) -> tuple[list[bytes], int]:
        """The next frames a listener gets and its new cursor; joined into few chunks, for fewer writes."""
        head = channel.head
        entries = channel.since(after)
        if entries is None:
            page = await run_in_threadpool(self._page, channel, after)
            entries = [(item["n"], item, b"") for item in page]
            if len(page) == PAGE:
                head = page[-1]["n"]
        kept = [made or frame(channel.kind, item) for _, item, made in entries if keep is None or keep(item)]
        newest = entries[-1][0] if entries else after
        return ([b"".join(kept)] if kept else []), max(newest, head)

    def _page(self, channel: Channel, after: int) -> Sequence[Item]:
        with self._database.reading() as session:
            return self._readers[channel.kind](session, channel.job_id, after, PAGE)

    def _join(self, kind: str, job_id: str) -> Channel:
        channel = self._channels.setdefault((kind, job_id), Channel(job_id, kind))
        channel.n_listeners += 1
        if self._task is None and not self._is_closed:
            self._task = asyncio.create_task(self._watch(), name="follow jobs")
            self._task.add_done_callback(self._watch_ended)
        return channel

    def _leave(self, channel: Channel) -> None:
        channel.n_listeners -= 1
        if channel.n_listeners == 0 and self._channels.get((channel.kind, channel.job_id)) is channel:
            del self._channels[channel.kind, channel.job_id]

    async def _watch(self) -> None:
        """The shared tick; runs only while somebody listens."""
        is_down = False
        while self._channels:
            try:
                await self._tick()
                is_down = False
            except SQLAlchemyError as error:
                if not is_down:
                    log.warning("following jobs waits for the database: %s", error)
                is_down = True
            await asyncio.sleep(self._tick_s)
        self._task = None

    def _watch_ended(self, task: asyncio.Task[None]) -> None:
        """A watch that broke must not leave its listeners waiting: they are cut off and come back."""
        if task.cancelled() or task.exception() is None:
            return
        log.error("following jobs broke; every listener is cut off", exc_info=task.exception())
        self._task = None
        for channel in self._channels.values():
            channel.is_dropped = True
            channel.wake()
        self._channels.clear()

    async def _tick(self) -> None:
        channels = list(self._channels.values())
        cursors = await run_in_threadpool(self._cursors, sorted({channel.job_id for channel in channels}))
        for channel in channels:
            found = cursors.get(channel.job_id)
            if found is None:  # the job is gone from the database
                channel.take([], channel.head, is_over=True)
                continue
            head, is_over = found[channel.kind], found["over"] == 1
            if not channel.is_known:
                channel.covers_from = head  # what is older is read by those who want it
            items = await self._new_items(channel, head)
            channel.take(items, head, is_over=is_over)

    async def _new_items(self, channel: Channel, head: int) -> list[Item]:
        """Rows after the channel's head, read once for all listeners; too many are left to the listeners' own pages."""
        if not channel.is_known or head <= channel.head:
            return []
        if head - channel.head > KEPT_FRAMES:
            channel.frames.clear()
            channel.covers_from = head
            return []
        items: list[Item] = []
        after = channel.head
        while after < head:
            page = await run_in_threadpool(self._page, channel, after)
            items.extend(item for item in page if item["n"] <= head)
            if len(page) < PAGE:
                break
            after = page[-1]["n"]
        return items

    def _cursors(self, job_ids: Sequence[str]) -> dict[str, dict[str, int]]:
        columns = (Job.id, Job.state, Job.last_event_n, Job.last_metric_n, Job.last_log_n)
        found: dict[str, dict[str, int]] = {}
        with self._database.reading() as session:
            for start in range(0, len(job_ids), PAGE):
                for row in session.execute(select(*columns).where(Job.id.in_(job_ids[start : start + PAGE]))):
                    found[row.id] = {
                        "event": row.last_event_n,
                        "metric": row.last_metric_n,
                        "log": row.last_log_n,
                        "over": int(row.state in TERMINAL),
                    }
        return found


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
