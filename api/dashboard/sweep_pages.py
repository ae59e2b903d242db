"""Sweeps: the list, one with its trials, and the page that starts one, empty or from a job."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from sqlalchemy.orm import Session
from starlette.responses import Response

from api.core import again, jobs, sweeps
from api.core.auth import Actor, Permission
from api.core.errors import NotFound
from api.core.specs import JobSpec
from api.core.tables import Job
from api.dashboard.access import allow_page
from api.dashboard.render import page
from api.deps import ReadSession
from api.routes.sweeps import describe, sweep_out, trial_out

router = APIRouter(include_in_schema=False, prefix="/sweeps")

SHOWN = 100
OWN_LABELS = ("sweep", "trial")
Reader = Annotated[Actor, allow_page(Permission.JOBS_READ)]


@router.get("")
def show_sweeps(request: Request, session: ReadSession, actor: Reader) -> Response:
    found, _cursor = sweeps.find(session, None, SHOWN)
    return page("sweeps.html", request, actor, sweeps=[describe(session, sweep) for sweep in found])


@router.get("/new")
def show_new_sweep(
    request: Request, session: ReadSession, actor: Reader, job: Annotated[str, Query(max_length=100)] = ""
) -> Response:
    """`job` names the one whose body is to be varied."""
    try:
        body, missing = _body(jobs.get(session, job) if job else _newest(session)), ""
    except NotFound:
        body, missing = _body(None), job
    return page("new_sweep.html", request, actor, body=body, missing=missing)


@router.get("/{sweep_id}")
def show_sweep(sweep_id: str, request: Request, session: ReadSession, actor: Reader) -> Response:
    try:
        sweep = sweeps.get(session, sweep_id)
    except NotFound as error:
        return page("error.html", request, actor, status=404, heading="No such sweep", message=error.message)
    found = sweeps.trials(session, sweep)
    best = sweeps.best_of(sweep, found)
    shown = [trial_out(trial, best) for trial in found]
    facts = {
        "metric": sweep.metric,
        "greaterIsBetter": sweep.greater_is_better,
        "paths": list(sweep.spec["parameters"]),
        "isLog": {path: bool(space["log"]) for path, space in sweep.spec["parameters"].items()},
        "trials": [trial.model_dump(mode="json", exclude={"rungs", "created_at"}) for trial in shown],
    }
    is_open = sweep.state in sweeps.OPEN
    described = sweep_out(sweep, found)
    return page("sweep.html", request, actor, sweep=described, trials=shown, facts=facts, is_open=is_open)


def _newest(session: Session) -> Job | None:
    found, _cursor = jobs.find(session, jobs.Filters(), None, 1)
    return jobs.get(session, found[0][0].id) if found else None


def _body(job: Job | None) -> dict[str, Any]:
    """A sweep that could be sent as it is, over the job's own body."""
    spec: dict[str, Any] = {"model": "", "dataset": {"train": ""}, "training": {}}
    metric = "loss"
    if job is not None:
        asked = again.spec_now(job)
        spec = JobSpec.model_dump(asked, mode="json", exclude_defaults=True)
        for name in ("name", "notes"):
            spec.pop(name, None)
        spec["labels"] = {key: value for key, value in asked.labels.items() if key not in OWN_LABELS}
        has_eval = asked.dataset.eval is not None or asked.dataset.eval_fraction is not None
        metric = str(job.resolved["metric_for_best"]) if has_eval else "loss"
    return {
        "name": f"sweep of {job.name}"[:200] if job is not None else "a sweep",
        "job": spec,
        "parameters": {"training.learning_rate": {"min": 1e-5, "max": 1e-3, "log": True}},
        "search": "tpe",
        "n_trials": 12,
        "n_parallel": 2,
        "objective": {"metric": metric},
    }
