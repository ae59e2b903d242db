"""What is asked of a job that exists: cancel, pause, resume, change it, make another one of it."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Response
from sqlalchemy.orm import Session

from api.core import again, jobs, moves, queue, wishes
from api.core.again import JobPatch, RetrySpec
from api.core.auth import Actor, Permission
from api.core.settings import Settings
from api.core.states import State
from api.core.tables import Job
from api.deps import JobId, SettingsDep, WriteSession, after_commit, allow
from api.job_shown import describe_job
from api.schemas import JobOut, refusals

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["jobs"])

Writer = Annotated[Actor, allow(Permission.JOBS_WRITE)]
IdempotencyKey = Annotated[
    str | None, Header(description="Makes a repeated request safe: it answers 200 with the job made first.")
]
UNDER_WAY = "The run was asked to stop; the job keeps its devices until it is gone."
STOPS = {202: {"model": JobOut, "description": UNDER_WAY}, **refusals(404, 409)}
MAKES = {200: {"model": JobOut, "description": "The job that an equal request made."}, **refusals(404, 409)}


@router.patch("", summary="Change a job", responses=refusals(400, 404, 409))
def change_job(
    job_id: JobId,
    patch: Annotated[
        JobPatch,
        Body(openapi_examples={"one": {"value": {"priority": 10, "labels": {"team": "support", "draft": None}}}}),
    ],
    session: WriteSession,
    settings: SettingsDep,
    actor: Writer,
) -> JobOut:
    """Labels and notes at any time; priority and time limit while it waits. What is left out stays as it is."""
    job = again.change(session, job_id, patch, actor.name)
    after_commit(session, partial(queue.nudge_schedule, settings))
    return describe_job(session, job, settings)


@router.post(
    "/cancel",
    summary="Cancel a job",
    responses=STOPS,
)
def cancel_job(
    job_id: JobId, session: WriteSession, settings: SettingsDep, actor: Writer, response: Response
) -> JobOut:
    """Works in every state but the final ones. A job that holds no process is `cancelled` at once."""
    jobs.get(session, job_id)
    job = moves.request_cancel(session, job_id, actor.name)
    return _stopping(session, job, State.CANCELLING, settings, response)


@router.post("/pause", summary="Pause a job", responses=STOPS)
def pause_job(job_id: JobId, session: WriteSession, settings: SettingsDep, actor: Writer, response: Response) -> JobOut:
    """A queued job is `paused` at once; a run saves a checkpoint first and is `pausing` until it is gone."""
    jobs.get(session, job_id)
    job = wishes.request_pause(session, job_id, actor.name)
    return _stopping(session, job, State.PAUSING, settings, response)


@router.post("/resume", summary="Resume a paused job", responses=refusals(404, 409))
def resume_job(job_id: JobId, session: WriteSession, settings: SettingsDep, actor: Writer) -> JobOut:
    """Back into the queue, in its old place; it goes on from its newest complete checkpoint."""
    jobs.get(session, job_id)
    job = wishes.request_resume(session, job_id, actor.name)
    after_commit(session, partial(queue.nudge_schedule, settings))
    return describe_job(session, job, settings)


@router.post("/retry", status_code=201, summary="Try a failed or cancelled job again", responses=MAKES)
def retry_job(
    job_id: JobId,
    session: WriteSession,
    settings: SettingsDep,
    actor: Writer,
    response: Response,
    wanted: Annotated[RetrySpec, Body(openapi_examples={"one": {"value": {"checkpoint": "last"}}})] = RetrySpec(),
    idempotency_key: IdempotencyKey = None,
) -> JobOut:
    """Makes a new job of the same body, from the start or from one of the earlier job's checkpoints."""
    made = again.retry(session, jobs.get(session, job_id), wanted, actor, idempotency_key, settings)
    return _made(session, *made, settings, response)


@router.post("/clone", status_code=201, summary="Make a job like this one", responses=MAKES | refusals(400, 404))
def clone_job(
    job_id: JobId,
    session: WriteSession,
    settings: SettingsDep,
    actor: Writer,
    response: Response,
    patch: Annotated[
        dict[str, Any],
        Body(openapi_examples={"one": {"value": {"name": "slower", "training": {"learning_rate": 1e-5}}}}),
    ] = {},  # noqa: B006  # never changed
    idempotency_key: IdempotencyKey = None,
) -> JobOut:
    """The body is a JSON merge patch over the job's own: what it names is replaced, null takes a key away."""
    made = again.clone(session, jobs.get(session, job_id), patch, actor, idempotency_key, settings)
    return _made(session, *made, settings, response)


def _stopping(session: Session, job: Job, under_way: State, settings: Settings, response: Response) -> JobOut:
    """Tell the run at once, or the scheduler that devices may be free."""
    if job.state == under_way:
        response.status_code = 202
        if (running := jobs.running_on(session, job)) is not None:
            after_commit(session, partial(queue.nudge_stop, *running, settings))
    else:
        after_commit(session, partial(queue.nudge_schedule, settings))
    return describe_job(session, job, settings)


def _made(session: Session, job: Job, is_new: bool, settings: Settings, response: Response) -> JobOut:
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    if is_new:
        after_commit(session, partial(queue.nudge_preflight, job.id, settings))
    else:
        response.status_code = 200
        response.headers["Idempotent-Replayed"] = "true"
    return describe_job(session, job, settings)
