"""A job's log lines: by page, searched, the newest ones, or followed. Text only; what shows it must escape it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from api.core import jobs, logs
from api.core.auth import Actor, Permission
from api.deps import After, JobId, Limit, PartsDep, ReadSession, allow
from api.follow import Item
from api.schemas import Feed, LogOut
from api.sse import StreamFrom, can_be_followed, page, stream
from api.wire import log_item

router = APIRouter(prefix="/v1/jobs/{job_id}/logs", tags=["jobs"])


@router.get("", summary="A job's log", response_model=Feed[LogOut], responses=can_be_followed("log", 404))
def read_logs(
    job_id: JobId,
    parts: PartsDep,
    session: ReadSession,
    _actor: Annotated[Actor, allow(Permission.JOBS_READ)],
    stream_from: StreamFrom,
    after: After = 0,
    limit: Limit = 100,
    search: Annotated[str | None, Query(max_length=200, description="Only lines with this text, any case.")] = None,
    rank: Annotated[int | None, Query(ge=0, le=100_000, description="Only lines of this rank.")] = None,
    tail: Annotated[int | None, Query(ge=1, le=1000, description="Only the newest lines; `after` is not used.")] = None,
) -> Response:
    """Oldest first. With `Accept: text/event-stream` it stays open: lines as they come, then `end`."""
    job = jobs.get(session, job_id)
    if tail is not None:
        after, limit = max(0, job.last_log_n - tail), tail
    if stream_from is None:
        return page(
            lambda n: [log_item(line) for line in logs.read(session, job_id, after, n, search, rank)], after, limit
        )

    def keep(item: Item) -> bool:
        return (rank is None or item["rank"] == rank) and (search is None or search.lower() in item["text"].lower())

    is_filtered = rank is not None or search is not None
    return stream(parts, "log", job_id, start=stream_from, after=after, keep=keep if is_filtered else None)
