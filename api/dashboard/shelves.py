"""The plain pages: datasets, models, nodes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from api.core import datasets, models, nodes
from api.core.auth import Actor, Permission
from api.dashboard.access import allow_page
from api.dashboard.render import page
from api.deps import ReadSession

router = APIRouter(include_in_schema=False)

SHOWN = 200


@router.get("/")
def go_to_jobs(_actor: Annotated[Actor, allow_page(Permission.JOBS_READ)]) -> Response:
    return RedirectResponse("/jobs", status_code=303)


@router.get("/datasets")
def show_datasets(
    request: Request, session: ReadSession, actor: Annotated[Actor, allow_page(Permission.DATASETS_READ)]
) -> Response:
    found, _next = datasets.find(session, None, SHOWN)
    return page("datasets.html", request, actor, datasets=found)


@router.get("/models")
def show_models(
    request: Request, session: ReadSession, actor: Annotated[Actor, allow_page(Permission.MODELS_READ)]
) -> Response:
    found, _next = models.listing(session, None, SHOWN)
    return page("models.html", request, actor, models=found)


@router.get("/nodes")
def show_nodes(
    request: Request, session: ReadSession, actor: Annotated[Actor, allow_page(Permission.NODES_READ)]
) -> Response:
    return page("nodes.html", request, actor, nodes=nodes.listing(session))
