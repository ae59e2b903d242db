"""Jobs: submit, list, look at. What is asked of one that exists is in `job_life.py`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Query, Response

from api.core import jobs, queue
from api.core.auth import Actor, Permission
from api.core.errors import Invalid
from api.core.jobs import Filters
from api.core.specs import JobSpec
from api.core.states import State
from api.deps import JobId, Limit, ReadSession, SettingsDep, WriteSession, after_commit, allow
from api.job_shown import describe_job, describe_jobs
from api.schemas import JobBrief, JobOut, Page, refusals

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

EXAMPLES: dict[str, Any] = {
    "lora": {
        "summary": "LoRA on two processes",
        "value": {
            "name": "support tickets",
            "model": "smollm2",
            "dataset": {"train": "ds_01k3f9c8w4m1q7x2s5v8zt", "eval_fraction": 0.1, "max_length": 512},
            "adapter": {"type": "lora", "r": 8, "lora_alpha": 16},
            "training": {"num_train_epochs": 2, "learning_rate": 2e-4, "per_device_train_batch_size": 4},
            "parallel": {"strategy": "deepspeed", "n_processes": 2, "zero_stage": 2},
            "labels": {"team": "support"},
        },
    },
    "full": {
        "summary": "Every weight, own column names",
        "value": {
            "model": "smollm2",
            "dataset": {
                "train": "gsm8k.jsonl",
                "columns": {"prompt": "question", "completion": "answer"},
            },
            "adapter": None,
            "training": {"max_steps": 100, "learning_rate": 1e-5},
        },
    },
}


@router.post(
    "",
    status_code=201,
    summary="Submit a job",
    responses={200: {"model": JobOut, "description": "The job that an equal request made."}, **refusals(400, 409, 413)},
)
def create_job(
    spec: Annotated[JobSpec, Body(openapi_examples=EXAMPLES)],
    session: WriteSession,
    settings: SettingsDep,
    actor: Annotated[Actor, allow(Permission.JOBS_WRITE)],
    response: Response,
    idempotency_key: Annotated[
        str | None, Header(description="Makes a repeated request safe: it answers 200 with the job made first.")
    ] = None,
) -> JobOut:
    """Every fault of the body is named at once. The job is `validating` until its rows were checked, then `queued`."""
    job, is_new = jobs.create(session, spec, actor, idempotency_key, settings)
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    if is_new:
        after_commit(session, partial(queue.nudge_preflight, job.id, settings))
    else:
        response.status_code = 200
        response.headers["Idempotent-Replayed"] = "true"
    return describe_job(session, job, settings)


@router.get("", summary="List jobs", responses=refusals())
def list_jobs(
    session: ReadSession,
    settings: SettingsDep,
    _actor: Annotated[Actor, allow(Permission.JOBS_READ)],
    state: Annotated[list[State] | None, Query(description="One of these; give it several times.")] = None,
    label: Annotated[list[str] | None, Query(max_length=16, description="`key:value`; all of them must hold.")] = None,
    name: Annotated[str | None, Query(max_length=200, description="Part of the name, any case.")] = None,
    after: Annotated[str | None, Query(max_length=100, description="`next` of the page before.")] = None,
    limit: Limit = 50,
) -> Page[JobBrief]:
    """Newest first, without `resolved` and `preflight`."""
    filters = Filters(states=state or (), labels=_labels(label or []), name=name)
    found, cursor = jobs.find(session, filters, after, limit)
    return Page(data=describe_jobs(session, found, settings), has_more=cursor is not None, next=cursor)


@router.get("/{job_id}", summary="A job", responses=refusals(404))
def read_job(
    job_id: JobId,
    session: ReadSession,
    settings: SettingsDep,
    _actor: Annotated[Actor, allow(Permission.JOBS_READ)],
) -> JobOut:
    """All that is known of it: state, progress, the resolved configuration, the cause when it failed."""
    return describe_job(session, jobs.get(session, job_id), settings)


def _labels(pairs: list[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for pair in pairs:
        key, colon, value = pair.partition(":")
        if not colon or not key:
            raise Invalid(f"expected key:value, found {pair[:60]!r}", param="label")
        if labels.setdefault(key, value) != value:
            raise Invalid(f"no job has two values of the label {key[:60]!r}", param="label")
    return labels
