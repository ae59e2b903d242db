"""Pages that can also be followed: the same route answers JSON, or server-sent events when `Accept` asks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Header, Request
from fastapi.sse import EventSourceResponse
from starlette.responses import JSONResponse, Response

from api.core.errors import Invalid
from api.deps import Parts
from api.follow import Item, Keep
from api.schemas import refusals

LAST_EVENT_ID = "Last-Event-ID"
MAX_CURSOR = 2**62

PageReader = Callable[[int], list[Item]]


def _cursor(
    request: Request,
    last_event_id: Annotated[
        str | None, Header(alias=LAST_EVENT_ID, description="Where a followed stream goes on after a cut line.")
    ] = None,
) -> int | None:
    """None when JSON is wanted; else where the stream starts (-1: where `after` says)."""
    if "text/event-stream" not in request.headers.get("accept", ""):
        return None
    if not last_event_id:
        return -1
    if not (last_event_id.isascii() and last_event_id.isdigit()) or int(last_event_id[:20]) > MAX_CURSOR:
        raise Invalid(f"{LAST_EVENT_ID} is the `n` of an item, found {last_event_id[:40]!r}", param=LAST_EVENT_ID)
    return int(last_event_id)


StreamFrom = Annotated[int | None, Depends(_cursor)]


def page(read: PageReader, after: int, limit: int) -> Response:
    """One page as JSON. Items are plain already; a model would only cost time."""
    found = read(limit + 1)
    data = found[:limit]
    return JSONResponse(
        {"data": data, "has_more": len(found) > limit, "next": data[-1]["n"] if data else after},
    )


def stream(
    parts: Parts, kind: str, job_id: str, *, start: int, after: int, keep: Keep | None = None
) -> EventSourceResponse:
    """The stream after `start` (a client that comes back) or `after`; the job is known to exist."""
    return EventSourceResponse(
        parts.follower.stream(kind, job_id, after if start < 0 else start, keep),
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )


def can_be_followed(kind: str, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """For a route's `responses`: the page, the stream, the refusals."""
    example = f'event: {kind}\ndata: {{"n": 1, ...}}\nid: 1\n\nevent: end\ndata: {{"job_id": "job_...", "n": 1}}\n\n'
    streamed = {"text/event-stream": {"schema": {"type": "string"}, "example": example}}
    return {200: {"description": "A page, or a stream.", "content": streamed}, **refusals(*statuses)}
