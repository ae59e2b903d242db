"""The log as the job page reads it: a page before or after a line, narrowed by text, rank and level."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from api.core import jobs
from api.core.auth import Actor, Permission
from api.dashboard import log_lines
from api.dashboard.access import allow_page
from api.dashboard.log_lines import Wanted
from api.deps import After, JobId, ReadSession

router = APIRouter(include_in_schema=False)

MAX_LINES = 1000


@router.get("/jobs/{job_id}/log")
def read_log(
    job_id: JobId,
    session: ReadSession,
    _actor: Annotated[Actor, allow_page(Permission.JOBS_READ)],
    before: After | None = None,
    after: After | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LINES)] = 500,
    search: Annotated[str, Query(max_length=200)] = "",
    rank: Annotated[int | None, Query(ge=0, le=100_000)] = None,
    level: Literal["", "warning", "error"] = "",
) -> Response:
    """Lines under `before` (null: the newest) or over `after`. `next` goes on in the same direction; null: the end."""
    newest = jobs.get(session, job_id).last_log_n
    wanted = Wanted(search, rank, level)
    if after is not None:
        found, following = log_lines.after(session, job_id, after, limit, wanted)
        return JSONResponse({"lines": found, "next": None if following < 0 else following, "newest": newest})
    start = newest + 1 if before is None else before
    found, following = log_lines.before(session, job_id, start, limit, wanted)
    return JSONResponse({"lines": found, "next": following or None, "newest": newest})
