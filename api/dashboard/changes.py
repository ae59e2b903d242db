"""Telling job lists that something changed: one small query a tick, shared by every viewer of this process.

The query counts by state in an index and looks into the rows of running jobs only, whatever the length of the list.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from api.core.auth import Actor, Permission
from api.core.states import TERMINAL, State
from api.core.tables import Job
from api.dashboard.access import allow_page
from api.deps import Parts, PartsDep

log = logging.getLogger(__name__)
router = APIRouter(include_in_schema=False)

TICK_S = 1.0
KEEPALIVE_TICKS = 15
MOVING = sorted({*State} - TERMINAL - {State.QUEUED, State.PAUSED})


class Changes:
    """Watches the list of jobs while somebody looks at it. `mark` is whatever the last look found."""

    def __init__(self, parts: Parts, tick_s: float = TICK_S) -> None:
        self._parts = parts
        self._tick_s = tick_s
        self._mark: Any = None
        self._n_changes = 0
        self._n_viewers = 0
        self._ticked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def stream(self) -> AsyncIterator[bytes]:
        """`changed`, once now and then after every tick that found something new; ends when the service stops."""
        self._n_viewers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._watch(), name="watch the job list")
        seen, quiet = -1, 0
        try:
            while not self._parts.follower.is_closed:
                if seen != self._n_changes:
                    seen, quiet = self._n_changes, 0
                    yield format_sse_event(data_str=str(seen), event="changed")
                elif quiet >= KEEPALIVE_TICKS:
                    quiet = 0
                    yield KEEPALIVE_COMMENT
                await self._ticked.wait()
                quiet += 1
        finally:
            self._n_viewers -= 1

    async def _watch(self) -> None:
        while self._n_viewers and not self._parts.follower.is_closed:
            await asyncio.sleep(self._tick_s)
            try:
                mark = await run_in_threadpool(self._look)
            except SQLAlchemyError as error:
                log.warning("the job list waits for the database: %s", error)
                continue
            if mark != self._mark:
                self._mark, self._n_changes = mark, self._n_changes + 1
            self._tick()
        self._task = None
        self._tick()

    def _tick(self) -> None:
        self._ticked.set()
        self._ticked = asyncio.Event()

    def _look(self) -> Any:
        counts = select(Job.state, func.count()).group_by(Job.state).order_by(Job.state)
        moving = select(
            func.sum(Job.last_event_n), func.sum(Job.last_metric_n), func.sum(Job.step), func.max(Job.progressed_at)
        ).where(Job.state.in_(MOVING))
        with self._parts.database.reading() as session:
            by_state = [tuple(row) for row in session.execute(counts)]
            return by_state, tuple(session.execute(moving).one()), session.scalar(select(func.max(Job.id)))


@router.get("/jobs/changes")
async def follow_changes(
    request: Request, parts: PartsDep, _actor: Annotated[Actor, allow_page(Permission.JOBS_READ)]
) -> EventSourceResponse:
    state = request.app.state
    if not hasattr(state, "changes"):
        state.changes = Changes(parts)
    changes: Changes = state.changes
    return EventSourceResponse(changes.stream(), headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
