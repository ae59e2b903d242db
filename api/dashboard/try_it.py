"""Try it: a prompt answered by a base model and by what a job made of it, side by side."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from api.core import checkpoints, engines, fine_tunes, models
from api.core.auth import Actor, Permission
from api.core.errors import NotFound
from api.dashboard.access import allow_page
from api.dashboard.render import page
from api.deps import ReadSession, SettingsDep

router = APIRouter(include_in_schema=False)

SHOWN = 200


@router.get("/try")
def show_try_it(
    request: Request,
    session: ReadSession,
    settings: SettingsDep,
    actor: Annotated[Actor, allow_page(Permission.JOBS_READ)],
    model: Annotated[str, Query(max_length=300)] = "",
    checkpoint: Annotated[str, Query(max_length=20)] = "best",
) -> Response:
    """`model`: a job's id or a registered model's name; without one there is a list to choose from."""
    chosen, listed, missing = None, [], ""
    if model.startswith("job_"):
        try:
            chosen = checkpoints.job_of(session, model)
            listed = checkpoints.listing(session, model)
        except NotFound:
            missing = model
    base, _ = models.listing(session, None, SHOWN)
    return page(
        "try.html",
        request,
        actor,
        model=model,
        checkpoint=checkpoint,
        job=chosen,
        listed=listed,
        missing=missing,
        tuned=fine_tunes.models(session)[:SHOWN],
        base=base,
        engines=[row for row in engines.listing(session) if row.state != engines.EngineState.ENDED],
        idle_s=settings.engine_idle_s,
        may_ask=actor.may(Permission.JOBS_WRITE),
    )
