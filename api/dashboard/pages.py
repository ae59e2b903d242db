"""The job pages: list, submit form, one job. They read what the API reads; what they change goes through the API."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from sqlalchemy.orm import Session
from starlette.responses import Response

from api.core import artifacts, checkpoints, datasets, jobs, models
from api.core.auth import Actor, Permission
from api.core.errors import NotFound
from api.core.jobs import Filters
from api.core.settings import Settings
from api.core.states import TERMINAL, State
from api.core.tables import Job
from api.dashboard.access import allow_page
from api.dashboard.render import page
from api.deps import JobId, ReadSession, SettingsDep
from api.job_shown import describe_job, describe_jobs
from api.schemas import JobOut

router = APIRouter(include_in_schema=False)

JOBS_A_PAGE = 50
CHOICES = 200
FIRST_LOG_LINES = 1000

Reader = Annotated[Actor, allow_page(Permission.JOBS_READ)]
Text = Annotated[str, Query(max_length=300)]


@router.get("/jobs")
def show_jobs(
    request: Request,
    session: ReadSession,
    settings: SettingsDep,
    actor: Reader,
    name: Text = "",
    state: Text = "",
    label: Text = "",
    after: Text = "",
) -> Response:
    shown = {"name": name, "state": state, "label": label, "after": after}
    listed = _listed(session, settings, shown)
    return page("jobs.html", request, actor, states=[*State], filters=shown, **listed)


@router.get("/jobs/table")
def show_jobs_table(
    request: Request,
    session: ReadSession,
    settings: SettingsDep,
    actor: Reader,
    name: Text = "",
    state: Text = "",
    label: Text = "",
    after: Text = "",
) -> Response:
    """The table alone, for the page's refresh."""
    shown = {"name": name, "state": state, "label": label, "after": after}
    return page("_jobs_table.html", request, actor, **_listed(session, settings, shown))


@router.get("/jobs/new")
def show_new_job(
    request: Request, session: ReadSession, actor: Annotated[Actor, allow_page(Permission.JOBS_WRITE)]
) -> Response:
    known_models, _ = models.listing(session, None, CHOICES)
    known_datasets, _ = datasets.find(session, None, CHOICES)
    return page("new_job.html", request, actor, models=known_models, datasets=known_datasets)


@router.get("/jobs/{job_id}")
def show_job(job_id: JobId, request: Request, session: ReadSession, settings: SettingsDep, actor: Reader) -> Response:
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
        log_after=max(0, row.last_log_n - FIRST_LOG_LINES),
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


def _job(session: Session, row: Job, settings: Settings) -> JobOut:
    return describe_job(session, row, settings)


def _listed(session: Session, settings: Settings, shown: dict[str, str]) -> dict[str, Any]:
    """The jobs of a page, the cursor of the next one, and the query that asks for this one again."""
    key, colon, value = shown["label"].partition(":")
    filters = Filters(
        states=[State(shown["state"])] if shown["state"] in set(State) else (),
        labels={key: value} if colon else {},
        name=shown["name"] or None,
    )
    found, following = jobs.find(session, filters, shown["after"] or None, JOBS_A_PAGE)
    rows = describe_jobs(session, found, settings)
    here = {name: text for name, text in shown.items() if text}
    narrowed = {name: text for name, text in here.items() if name != "after"}
    return {"jobs": rows, "next": following, "query": urlencode(here), "narrowed": urlencode(narrowed)}
