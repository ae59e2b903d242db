"""The page of one job and the parts of it that are asked for again. What it changes goes through the API."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from sqlalchemy.orm import Session
from starlette.responses import Response

from api.core import artifacts, checkpoints, jobs
from api.core.auth import Actor, Permission
from api.core.errors import NotFound
from api.core.settings import Settings
from api.core.states import TERMINAL
from api.core.tables import Job
from api.dashboard import attempts_list
from api.dashboard.access import allow_page
from api.dashboard.differences import compared, flattened
from api.dashboard.log_lines import LEVELS
from api.dashboard.render import page
from api.deps import JobId, ReadSession, SettingsDep
from api.job_shown import describe_job
from api.schemas import JobOut

router = APIRouter(include_in_schema=False)

Reader = Annotated[Actor, allow_page(Permission.JOBS_READ)]
Text = Annotated[str, Query(max_length=300)]


@router.get("/jobs/{job_id}")
def show_job(
    job_id: JobId,
    request: Request,
    session: ReadSession,
    settings: SettingsDep,
    actor: Reader,
    against: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """`against` names another job, whose configuration is shown beside this one's."""
    try:
        row = jobs.get(session, job_id)
    except NotFound as error:
        return page("error.html", request, actor, status=404, heading="No such job", message=error.message)
    return page(
        "job.html",
        request,
        actor,
        job=_job(session, row, settings),
        terminal=TERMINAL,
        checkpoints=checkpoints.listing(session, job_id),
        artifacts=artifacts.listing(session, job_id),
        attempts=attempts_list.listing(session, job_id),
        newest_log=row.last_log_n,
        levels=LEVELS,
        against=against,
        **_configuration(session, row, against.strip()),
    )


@router.get("/jobs/{job_id}/head")
def show_job_head(
    job_id: JobId, request: Request, session: ReadSession, settings: SettingsDep, actor: Reader
) -> Response:
    """What changes while it runs: state, progress, cause."""
    job = _job(session, jobs.get(session, job_id), settings)
    return page("_job_head.html", request, actor, job=job, terminal=TERMINAL)


@router.get("/jobs/{job_id}/rest")
def show_job_rest(
    job_id: JobId, request: Request, session: ReadSession, settings: SettingsDep, actor: Reader
) -> Response:
    """What comes with a new state: the preflight's findings, the run's files, the resolved configuration."""
    job = _job(session, jobs.get(session, job_id), settings)
    found = artifacts.listing(session, job_id)
    return page("_job_rest.html", request, actor, job=job, terminal=TERMINAL, artifacts=found)


@router.get("/jobs/{job_id}/checkpoints")
def show_job_checkpoints(job_id: JobId, request: Request, session: ReadSession, actor: Reader) -> Response:
    found = checkpoints.listing(session, job_id)
    return page("_checkpoints.html", request, actor, checkpoints=found)


@router.get("/jobs/{job_id}/attempts")
def show_job_attempts(job_id: JobId, request: Request, session: ReadSession, actor: Reader) -> Response:
    found = attempts_list.listing(session, jobs.get(session, job_id).id)
    return page("_attempts.html", request, actor, attempts=found)


def _configuration(session: Session, row: Job, against: str) -> dict[str, Any]:
    """The resolved configuration as rows, beside another job's when one is named."""
    own = flattened(row.resolved)
    if not against:
        return {"options": [(path, [text], False) for path, text in own.items()], "other": None, "no_other": None}
    try:
        other = jobs.get(session, against)
    except NotFound:
        return {"options": [(path, [text], False) for path, text in own.items()], "other": None, "no_other": against}
    return {"options": compared([own, flattened(other.resolved)]), "other": other, "no_other": None}


def _job(session: Session, row: Job, settings: Settings) -> JobOut:
    return describe_job(session, row, settings)
