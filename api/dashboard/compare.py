"""Several jobs side by side: their curves, the best of each, and only the options in which they differ."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from api.core import jobs
from api.core.auth import Actor, Permission
from api.core.errors import NotFound
from api.dashboard.access import allow_page
from api.dashboard.differences import compared, flattened
from api.dashboard.render import page
from api.deps import ReadSession, SettingsDep
from api.job_shown import describe_job

router = APIRouter(include_in_schema=False)

MAX_JOBS = 20
# What tells two jobs apart without being a choice of their own.
NO_OPTION = ("data.train.storage_key", "data.eval.storage_key", "data.train.size_bytes", "data.eval.size_bytes")


@router.get("/compare")
def show_comparison(
    request: Request,
    session: ReadSession,
    settings: SettingsDep,
    actor: Annotated[Actor, allow_page(Permission.JOBS_READ)],
    jobs_named: Annotated[str, Query(alias="jobs", max_length=1000)] = "",
) -> Response:
    wanted = list(dict.fromkeys(name.strip() for name in jobs_named.split(",") if name.strip()))
    found, missing = [], []
    for job_id in wanted[:MAX_JOBS]:
        try:
            found.append(describe_job(session, jobs.get(session, job_id), settings))
        except NotFound:
            missing.append(job_id)
    rows = compared([flattened(job.resolved) for job in found])
    differing = [(path, values) for path, values, differs in rows if differs and path not in NO_OPTION]
    return page(
        "compare.html", request, actor, jobs=found, missing=missing, left_out=wanted[MAX_JOBS:], differing=differing
    )
