"""Sweeps of hyperparameters: submit, list, look at, cancel; their trials."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Header, Path, Query, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from api.core import jobs, queue, sweeps
from api.core.auth import Actor, Permission
from api.core.sweep_specs import SweepSpec
from api.core.sweep_tables import Sweep
from api.core.sweeps import SweepState, Trial
from api.core.tables import Job
from api.deps import Limit, ReadSession, SettingsDep, WriteSession, after_commit, allow
from api.schemas import Page, refusals

router = APIRouter(prefix="/v1/sweeps", tags=["sweeps"])

Reader = Annotated[Actor, allow(Permission.JOBS_READ)]
Writer = Annotated[Actor, allow(Permission.JOBS_WRITE)]
SweepId = Annotated[str, Path(description="The sweep's id.", examples=["swp_01k3f9c8w4m1q7x2s5v8zt"])]
EXAMPLES: dict[str, Any] = {
    "tpe": {
        "summary": "Rate and rank, learning from earlier trials, stopping early",
        "value": {
            "name": "rate and rank",
            "job": {
                "model": "smollm2",
                "dataset": {"train": "gsm8k.jsonl", "eval_fraction": 0.1},
                "adapter": {"type": "lora"},
                "training": {"max_steps": 200, "eval_steps": 20},
            },
            "parameters": {
                "training.learning_rate": {"min": 1e-5, "max": 1e-3, "log": True},
                "adapter.r": {"values": [4, 8, 16]},
            },
            "search": "tpe",
            "n_trials": 20,
            "n_parallel": 2,
            "objective": {"metric": "eval_loss"},
            "early_stopping": {"min_steps": 40, "reduction_factor": 3},
        },
    }
}


class TrialOut(BaseModel):
    """One point of the search."""

    number: int
    job_id: str | None = Field(description="null: its job was refused; `reason` says why.")
    state: str = Field(description="As the job's; pruned, and before that stopping, where it was stopped early.")
    values: dict[str, Any] = Field(description="Parameter path -> value.")
    value: float | None = Field(description="The objective, once the job is over; null: none yet, or none finite.")
    value_step: int | None
    latest: float | None = Field(description="Newest value of the metric; null: none yet, or not finite.")
    step: int
    planned_steps: int | None
    attempt: int
    rungs: list[dict[str, Any]] = Field(description="Rungs of early stopping it reached: {rung, step, value, keeps}.")
    pruned_at_step: int | None
    reason: str | None = Field(description="Why it was stopped early or refused.")
    is_best: bool
    created_at: datetime


class SweepOut(BaseModel):
    id: str
    name: str
    state: SweepState
    cause: dict[str, Any] | None = Field(description="Why it failed: {code, message, hint}.")
    job: dict[str, Any] = Field(description="The body that is varied, its datasets by id.")
    parameters: dict[str, Any]
    search: Literal["grid", "random", "tpe"]
    seed: int
    n_trials: int
    n_parallel: int
    objective: dict[str, Any] = Field(description="{metric, direction, value}, the direction settled.")
    early_stopping: dict[str, Any] | None
    labels: dict[str, str]
    notes: list[str]
    counts: dict[str, int] = Field(description="Trials by state, and made, to_come, retried.")
    best: TrialOut | None = Field(description="The best trial that ran to its end.")
    created_at: datetime
    finished_at: datetime | None


def trial_out(trial: Trial, best: Trial | None) -> TrialOut:
    names = ("number", "job_id", "values", "value", "value_step", "rungs", "pruned_at_step", "reason", "created_at")
    return TrialOut(
        **{name: getattr(trial.row, name) for name in names},
        state=trial.state,
        latest=None if isinstance(trial.latest, str) else trial.latest,
        step=trial.step,
        planned_steps=trial.planned_steps,
        attempt=trial.attempt,
        is_best=best is not None and best.row.number == trial.row.number,
    )


def sweep_out(sweep: Sweep, found: list[Trial]) -> SweepOut:
    spec, best = sweep.spec, sweeps.best_of(sweep, found)
    direction = "maximize" if sweep.greater_is_better else "minimize"
    names = ("id", "name", "cause", "n_trials", "labels", "notes", "created_at", "finished_at")
    asked = ("job", "search", "seed", "n_parallel", "early_stopping")
    return SweepOut(
        **{name: getattr(sweep, name) for name in names},
        **{name: spec[name] for name in asked},
        state=SweepState(sweep.state),
        parameters={path: _said(space) for path, space in spec["parameters"].items()},
        objective={**spec["objective"], "direction": direction},
        counts=sweeps.counts_of(sweep, found),
        best=trial_out(best, best) if best is not None else None,
    )


def _said(space: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in space.items() if value is not None and value is not False}


def describe(session: Session, sweep: Sweep) -> SweepOut:
    return sweep_out(sweep, sweeps.trials(session, sweep))


@router.post(
    "",
    status_code=201,
    summary="Submit a sweep",
    responses={200: {"model": SweepOut, "description": "The sweep that an equal request made."}, **refusals(400, 413)},
)
def create_sweep(
    spec: Annotated[SweepSpec, Body(openapi_examples=EXAMPLES)],
    session: WriteSession,
    settings: SettingsDep,
    actor: Writer,
    response: Response,
    idempotency_key: Annotated[
        str | None, Header(description="Makes a repeated request safe: it answers 200 with the sweep made first.")
    ] = None,
) -> SweepOut:
    """The whole search is checked now: every path, the objective, and the job at each corner of the space. Its trials
    are ordinary jobs, labelled `sweep` and `trial`."""
    sweep, is_new = sweeps.create(session, spec, actor, idempotency_key, settings)
    response.headers["Location"] = f"/v1/sweeps/{sweep.id}"
    if is_new:
        after_commit(session, partial(queue.nudge_schedule, settings))
    else:
        response.status_code = 200
        response.headers["Idempotent-Replayed"] = "true"
    return describe(session, sweep)


@router.get("", summary="List sweeps", responses=refusals())
def list_sweeps(
    session: ReadSession,
    _actor: Reader,
    after: Annotated[str | None, Query(max_length=100, description="`next` of the page before.")] = None,
    limit: Limit = 50,
) -> Page[SweepOut]:
    """Newest first."""
    found, cursor = sweeps.find(session, after, limit)
    return Page(data=[describe(session, sweep) for sweep in found], has_more=cursor is not None, next=cursor)


@router.get("/{sweep_id}", summary="A sweep", responses=refusals(404))
def read_sweep(sweep_id: SweepId, session: ReadSession, _actor: Reader) -> SweepOut:
    return describe(session, sweeps.get(session, sweep_id))


@router.get("/{sweep_id}/trials", summary="A sweep's trials", responses=refusals(404))
def list_trials(
    sweep_id: SweepId,
    session: ReadSession,
    _actor: Reader,
    after: Annotated[int, Query(ge=-1, le=10**6, description="`next` of the page before.")] = -1,
    limit: Limit = 100,
) -> Page[TrialOut]:
    """In the order they were made."""
    sweep = sweeps.get(session, sweep_id)
    found = sweeps.trials(session, sweep)
    best, later = sweeps.best_of(sweep, found), [trial for trial in found if trial.row.number > after]
    page = later[:limit]
    has_more = len(later) > limit
    data = [trial_out(trial, best) for trial in page]
    return Page(data=data, has_more=has_more, next=str(page[-1].row.number) if has_more else None)


@router.post("/{sweep_id}/cancel", summary="Cancel a sweep", responses=refusals(404, 409))
def cancel_sweep(sweep_id: SweepId, session: WriteSession, settings: SettingsDep, actor: Writer) -> SweepOut:
    """No further trial is made and those under way are cancelled; `cancelling` until the last of them is gone."""
    sweep, asked = sweeps.cancel(session, sweep_id, actor.name)
    for job_id in asked:
        running = jobs.running_on(session, session.get_one(Job, job_id))
        if running is not None:
            after_commit(session, partial(queue.nudge_stop, *running, settings))
    after_commit(session, partial(queue.nudge_schedule, settings))
    return describe(session, sweep)
