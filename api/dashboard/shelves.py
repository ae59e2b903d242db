"""The plain pages: datasets and their rows, models, nodes."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from api.core import datasets, models, nodes
from api.core.auth import Actor, Permission
from api.core.errors import NotFound
from api.core.tables import Dataset
from api.dashboard.access import allow_page
from api.dashboard.render import page
from api.dashboard.row_lengths import sampled
from api.deps import ReadSession, StorageDep

router = APIRouter(include_in_schema=False)

SHOWN = 200
ROWS = 20

DatasetReader = Annotated[Actor, allow_page(Permission.DATASETS_READ)]


@router.get("/")
def go_to_jobs(_actor: Annotated[Actor, allow_page(Permission.JOBS_READ)]) -> Response:
    return RedirectResponse("/jobs", status_code=303)


@router.get("/datasets")
def show_datasets(request: Request, session: ReadSession, actor: DatasetReader) -> Response:
    found, _next = datasets.find(session, None, SHOWN)
    return page("datasets.html", request, actor, datasets=found)


@router.get("/datasets/{dataset_id}")
def show_dataset(
    dataset_id: str,
    request: Request,
    session: ReadSession,
    storage: StorageDep,
    actor: DatasetReader,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
) -> Response:
    try:
        dataset = datasets.get(session, dataset_id)
    except NotFound:
        return page("error.html", request, actor, status=404, heading="No such dataset", message="It may be deleted.")
    rows, following = datasets.preview(storage, dataset, after, ROWS)
    lengths = sampled(storage, dataset)
    shown: dict[str, Any] = {"rows": rows, "after": after, "previous": max(0, after - ROWS), "next": following}
    return page("dataset.html", request, actor, dataset=dataset, lengths=lengths, columns=_columns(dataset), **shown)


@router.get("/datasets/{dataset_id}/lengths")
def read_lengths(dataset_id: str, session: ReadSession, storage: StorageDep, _actor: DatasetReader) -> Response:
    return JSONResponse(sampled(storage, datasets.get(session, dataset_id)))


def _columns(dataset: Dataset) -> list[tuple[str, str]]:
    return [(name, ", ".join(types)) for name, types in dataset.report["columns"].items()]


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
    return page("nodes.html", request, actor, nodes=nodes.listing(session), may_hold=actor.may(Permission.ADMIN))
