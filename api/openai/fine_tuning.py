"""Fine-tuning jobs as OpenAI's clients make, list and follow them: the same calls of the core as /v1/jobs."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from sqlalchemy.orm import Session

from api.core import checkpoints, fine_tune_events, fine_tunes, jobs, moves, queue, wishes
from api.core.auth import Actor, Permission
from api.core.errors import Invalid
from api.core.fine_tunes import Asked
from api.core.settings import Settings
from api.core.states import State
from api.core.tables import Job
from api.deps import ReadSession, SettingsDep, WriteSession, after_commit, allow
from api.openai import names, objects
from api.openai.bodies import CreateJob, as_spec
from api.openai.objects import Object

router = APIRouter(prefix="/openai/v1/fine_tuning/jobs", include_in_schema=False)

MAX_PAGE = 1000
Reader = Annotated[Actor, allow(Permission.JOBS_READ)]
Writer = Annotated[Actor, allow(Permission.JOBS_WRITE)]
PageLimit = Annotated[int, Query(ge=1, le=MAX_PAGE)]


@router.post("")
def create_job(
    body: CreateJob,
    session: WriteSession,
    settings: SettingsDep,
    actor: Writer,
    response: Response,
    idempotency_key: Annotated[str | None, Header()] = None,
    x_stainless_retry_count: Annotated[str | None, Header()] = None,
) -> Object:
    sent = body.model_dump(mode="json", exclude_unset=True)
    asked = Asked(
        body=sent,
        sha256=hashlib.sha256(json.dumps(sent, sort_keys=True).encode()).hexdigest(),
        suffix=body.suffix,
        idempotency_key=idempotency_key,
        is_retry=x_stainless_retry_count not in (None, "", "0"),
    )
    base, start = _start(session, body)
    spec = as_spec(body.model_copy(update={"model": base}), start)
    job, is_new = fine_tunes.create(session, spec, asked, actor, settings)
    if is_new:
        after_commit(session, partial(queue.nudge_preflight, job.id, settings))
    else:
        response.headers["Idempotent-Replayed"] = "true"
    return objects.job(fine_tunes.get(session, job.id))


def _start(session: Session, body: CreateJob) -> tuple[str, dict[str, Any] | None]:
    """The base model's name; and where the model asked for is itself a fine-tuned one, what it starts from."""
    found = names.tuned(body.model)
    if found is None:
        return body.model, None
    tuned, listed = fine_tunes.find_model(session, body.model, found.job_id, found.step)
    where = {"job": tuned.job.id, "checkpoint": listed.checkpoint.step, "mode": "weights"}
    return tuned.job.model_name, {"continue_from": where, "adapter": tuned.job.spec["adapter"]}


@router.get("")
def list_jobs(
    request: Request, session: ReadSession, _actor: Reader, after: str | None = None, limit: PageLimit = 20
) -> Object:
    """Newest first. `metadata[k]=v` narrows it, `metadata=null` to jobs without any."""
    metadata, only_bare = _metadata(request)
    cursor = names.job_id(after) if after is not None else None
    found, has_more = fine_tunes.page(session, cursor, limit, metadata, only_bare=only_bare)
    return objects.page([objects.job(tuned) for tuned in found], has_more=has_more)


def _metadata(request: Request) -> tuple[dict[str, str], bool]:
    wanted: dict[str, str] = {}
    only_bare = False
    for key, value in request.query_params.multi_items():
        if key == "metadata":
            if value not in ("null", ""):
                raise Invalid(f"expected metadata[key]=value or metadata=null, found {value[:60]!r}", param="metadata")
            only_bare = value == "null"
        elif key.startswith("metadata[") and key.endswith("]"):
            wanted[key.removeprefix("metadata[").removesuffix("]")] = value
    return wanted, only_bare


@router.get("/{fine_tuning_job_id}")
def read_job(fine_tuning_job_id: str, session: ReadSession, _actor: Reader) -> Object:
    return objects.job(fine_tunes.get(session, names.job_id(fine_tuning_job_id)))


@router.post("/{fine_tuning_job_id}/cancel")
def cancel_job(fine_tuning_job_id: str, session: WriteSession, settings: SettingsDep, actor: Writer) -> Object:
    """Answers at once; a run that holds devices is `running` in the state `cancelling` until it is gone."""
    job_id = fine_tunes.get(session, names.job_id(fine_tuning_job_id)).job.id
    return _asked(session, moves.request_cancel(session, job_id, by=actor.name), settings)


@router.post("/{fine_tuning_job_id}/pause")
def pause_job(fine_tuning_job_id: str, session: WriteSession, settings: SettingsDep, actor: Writer) -> Object:
    """A run saves a checkpoint first and is `running` in the state `pausing` until it is gone."""
    job_id = fine_tunes.get(session, names.job_id(fine_tuning_job_id)).job.id
    return _asked(session, wishes.request_pause(session, job_id, by=actor.name), settings)


@router.post("/{fine_tuning_job_id}/resume")
def resume_job(fine_tuning_job_id: str, session: WriteSession, settings: SettingsDep, actor: Writer) -> Object:
    job_id = fine_tunes.get(session, names.job_id(fine_tuning_job_id)).job.id
    return _asked(session, wishes.request_resume(session, job_id, by=actor.name), settings)


def _asked(session: Session, job: Job, settings: Settings) -> Object:
    """The job after a wish; who has to act on it is told once it is committed."""
    if job.state not in (State.CANCELLING, State.PAUSING):
        after_commit(session, partial(queue.nudge_schedule, settings))
    elif (running := jobs.running_on(session, job)) is not None:
        after_commit(session, partial(queue.nudge_stop, *running, settings))
    return objects.job(fine_tunes.get(session, job.id))


@router.get("/{fine_tuning_job_id}/events")
def list_events(
    fine_tuning_job_id: str, session: ReadSession, _actor: Reader, after: str | None = None, limit: PageLimit = 20
) -> Object:
    """What happened and what was measured, newest first."""
    job = fine_tunes.get(session, names.job_id(fine_tuning_job_id)).job
    cursor = None
    if after is not None:
        named = names.event_of(after, job.id)
        cursor = fine_tune_events.find(session, job.id, *named) if named else None
        if cursor is None:
            raise Invalid("this is the id of no event of the job; pass the last one of the page before", param="after")
    found, has_more = fine_tune_events.page(session, job, cursor, limit)
    return objects.page([objects.event(item) for item in found], has_more=has_more)


@router.get("/{fine_tuning_job_id}/checkpoints")
def list_checkpoints(
    fine_tuning_job_id: str, session: ReadSession, _actor: Reader, after: str | None = None, limit: PageLimit = 10
) -> Object:
    """Newest first."""
    tuned = fine_tunes.get(session, names.job_id(fine_tuning_job_id))
    listed = sorted(checkpoints.listing(session, tuned.job.id), key=lambda one: one.checkpoint.step, reverse=True)
    ids = [one.checkpoint.id for one in listed]
    start = 0
    if after is not None:
        wanted = names.own_checkpoint_id(after)
        if wanted not in ids:
            raise Invalid("this is the id of no checkpoint of the job (now)", param="after")
        start = ids.index(wanted) + 1
    shown = [objects.checkpoint(tuned, one) for one in listed[start : start + limit]]
    return objects.page(shown, has_more=start + limit < len(listed))
