"""A job's events: by page, or followed as server-sent events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response

from api.core import events, jobs
from api.core.auth import Actor, Permission
from api.deps import After, JobId, Limit, PartsDep, ReadSession, allow
from api.schemas import EventOut, Feed
from api.sse import StreamFrom, can_be_followed, page, stream
from api.wire import event_item

router = APIRouter(prefix="/v1/jobs/{job_id}/events", tags=["jobs"])


@router.get(
    "", summary="What happened to a job", response_model=Feed[EventOut], responses=can_be_followed("event", 404)
)
def read_events(
    job_id: JobId,
    parts: PartsDep,
    session: ReadSession,
    _actor: Annotated[Actor, allow(Permission.JOBS_READ)],
    stream_from: StreamFrom,
    after: After = 0,
    limit: Limit = 100,
) -> Response:
    """Oldest first. With `Accept: text/event-stream` it stays open: events as they come, then `end`."""
    jobs.get(session, job_id)
    if stream_from is not None:
        return stream(parts, "event", job_id, start=stream_from, after=after)
    return page(lambda n: [event_item(row) for row in events.read(session, job_id, after, n)], after, limit)
