"""The submit form: empty, from a preset, or from an earlier job; what is known of a body before it is sent."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from sqlalchemy.orm import Session
from starlette.responses import JSONResponse, Response

from api.core import again, datasets, jobs, models
from api.core.auth import Actor, Permission
from api.core.errors import NotFound
from api.core.resolve import resolve
from api.core.specs import JobSpec
from api.dashboard.access import allow_page
from api.dashboard.presets import PRESETS
from api.dashboard.render import page
from api.deps import ReadSession, SettingsDep
from trainer_core.arguments.table import ACCEPTED, Option
from trainer_core.data.fields import FIELDS
from trainer_core.data.mapping import METHOD_FORMATS
from trainer_core.methods_table import METHODS

router = APIRouter(include_in_schema=False)

CHOICES = 200
ONLY = {"cuda": "CUDA only.", "ddp": "Without DeepSpeed only.", "": ""}

Writer = Annotated[Actor, allow_page(Permission.JOBS_WRITE)]


@router.get("/jobs/new")
def show_new_job(
    request: Request,
    session: ReadSession,
    actor: Writer,
    preset: Annotated[str, Query(max_length=40)] = "",
    clone: Annotated[str, Query(max_length=100)] = "",
    checkpoint: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """`clone` fills the form with an earlier job's body; with `checkpoint` the new job goes on from that one."""
    known_models, _ = models.listing(session, None, CHOICES)
    known_datasets, _ = datasets.find(session, None, CHOICES)
    start, fault = _start(session, preset, clone, checkpoint)
    fields = {name: {"needed": list(fields.required), "all": list(fields.all)} for name, fields in FIELDS.items()}
    return page(
        "new_job.html",
        request,
        actor,
        models=known_models,
        datasets=known_datasets,
        methods=METHODS,
        presets=PRESETS,
        chosen=preset,
        fault=fault,
        facts={"start": start, "presets": PRESETS, "fields": fields, "formats": METHOD_FORMATS},
    )


def _start(session: Session, preset: str, clone: str, checkpoint: str) -> tuple[dict[str, Any] | None, str | None]:
    """The body to begin with, and what could not be done."""
    if not clone:
        return (PRESETS[preset]["body"], None) if preset in PRESETS else (None, None)
    try:
        spec = again.spec_now(jobs.get(session, clone))
    except NotFound:
        return None, f"There is no job {clone}; the form is empty instead."
    body = spec.model_dump(mode="json", exclude_defaults=True)
    if checkpoint:
        body["continue_from"] = {"job": clone, "checkpoint": checkpoint, "mode": "full"}
    return body, None


@router.get("/jobs/new/options")
def list_options(_actor: Writer) -> Response:
    """Every training option that is taken, with its help, for the form's search."""
    return JSONResponse([_option(option) for option in ACCEPTED.values()])


def _option(option: Option) -> dict[str, Any]:
    bounds = {"at_least": option.at_least, "over": option.over, "at_most": option.at_most, "under": option.under}
    return {
        "name": option.name,
        "kind": option.kind,
        "help": f"{option.doc} {ONLY[option.only]}".strip(),
        "default": option.default,
        "choices": option.choices,
        **{name: bound for name, bound in bounds.items() if bound is not None},
    }


@router.post("/jobs/new/check")
def check_body(spec: JobSpec, session: ReadSession, settings: SettingsDep, _actor: Writer) -> Response:
    """What the body comes to, without making a job of it. Refused as a submit would be, with every fault."""
    resolved = resolve(session, spec, settings).resolved
    return JSONResponse(
        {
            "planned_steps": resolved.planned_steps,
            "steps_per_epoch": resolved.steps_per_epoch,
            "global_batch_size": resolved.global_batch_size,
            "format": resolved.data.format,
            "n_train_rows": resolved.data.n_train_rows,
            "n_eval_rows": resolved.data.n_eval_rows,
            "strategy": resolved.parallel.strategy,
            "learning_rate": resolved.training.get("learning_rate"),
            "metric_for_best": resolved.metric_for_best,
            "notes": resolved.notes,
        }
    )
