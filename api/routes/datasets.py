"""Datasets: sent as a stream, listed, looked into row by row, downloaded, deleted."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field

from api import uploads
from api.core import datasets
from api.core.auth import Actor, Permission
from api.core.names import dataset_prefix
from api.core.previews import PreviewRow
from api.core.tables import Dataset
from api.deps import Limit, Parts, PartsDep, ReadSession, StorageDep, WriteSession, after_commit, allow
from api.downloads import Download, answer, file_name
from api.schemas import Page, refusals
from api.uploads import Received

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])

# Checking rows is work for one core: more at once would only starve the requests that wait beside them.
CHECKERS = CapacityLimiter(2)
SUFFIXES = (".gz", ".jsonl", ".ndjson", ".json")
FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "string", "contentMediaType": "application/jsonl"},
                        "name": {"type": "string", "description": "Shown instead of the file's own name."},
                    },
                }
            },
            "application/jsonl": {"schema": {"type": "string"}},
        },
    }
}

DatasetId = Annotated[str, Path(description="The dataset's id.", examples=["ds_01k3f9c8w4m1q7x2s5v8zt"])]


class DatasetOut(BaseModel):
    id: str
    name: str = Field(description="The file's name as sent, without folders.", examples=["train.jsonl"])
    format: str | None = Field(description="Null: no known format; a job maps the columns.", examples=["messages"])
    n_rows: int
    size_bytes: int = Field(description="Of the rows as they are stored.")
    sha256: str = Field(description="Of the rows as they are stored; equal rows have equal digests.")
    columns: dict[str, list[str]] = Field(description="Column -> JSON types seen in it.")
    notes: list[str] = Field(description="What was changed or left out on the way in.")
    created_at: datetime


class RowOut(BaseModel):
    n: int = Field(description="Row number, from 1.")
    row: dict[str, Any]
    is_cut: bool = Field(description="Whether a long text in it was shortened; `full=true` shows all of it.")


class RowPage(BaseModel):
    data: list[RowOut]
    has_more: bool
    next: int | None = Field(description="`n` of the last row; pass it as `after`. Null at the end.")


def dataset_out(dataset: Dataset) -> DatasetOut:
    report = dataset.report
    facts = {name: getattr(dataset, name) for name in ("id", "name", "format", "n_rows", "size_bytes", "sha256")}
    return DatasetOut(**facts, columns=report["columns"], notes=report["notes"], created_at=dataset.created_at)


@router.post(
    "", status_code=201, summary="Upload a dataset", responses=refusals(400, 413), openapi_extra=FORM, name="upload"
)
async def create_dataset(
    request: Request,
    response: Response,
    parts: PartsDep,
    actor: Annotated[Actor, allow(Permission.DATASETS_WRITE)],
    _name: Annotated[str | None, Query(alias="name", description="With a file as the body: its shown name.")] = None,
) -> DatasetOut:
    """A multipart form with the field `file` (and maybe `name`), or the file itself as the body, with `?name=`.

    JSONL or a JSON array, UTF-8 or UTF-16, gzip or not; the content decides, not the name. Every row is checked before
    the answer: a file with a bad row is refused with its line, and nothing of it is kept.
    """
    async with uploads.private_folder(parts.settings.incoming_dir) as folder:
        received = await uploads.receive(request, folder, parts.settings)
        dataset = await to_thread.run_sync(_keep, parts, received, actor, limiter=CHECKERS)
    response.headers["Location"] = f"/v1/datasets/{dataset.id}"
    return dataset


def _keep(parts: Parts, received: Received, actor: Actor) -> DatasetOut:
    stored = datasets.store(parts.storage, parts.settings, received.path, received.name)
    try:
        with parts.database.session() as session:
            return dataset_out(datasets.add(session, stored, actor.id))
    except BaseException:
        datasets.discard(parts.storage, stored)
        raise


@router.get("", summary="List datasets", responses=refusals())
def list_datasets(
    session: ReadSession,
    _actor: Annotated[Actor, allow(Permission.DATASETS_READ)],
    after: Annotated[str | None, Query(description="`next` of the page before.")] = None,
    limit: Limit = 100,
) -> Page[DatasetOut]:
    """Newest first."""
    found, cursor = datasets.find(session, after, limit)
    return Page(data=[dataset_out(dataset) for dataset in found], has_more=cursor is not None, next=cursor)


@router.get("/{dataset_id}", summary="One dataset", responses=refusals(404))
def read_dataset(
    dataset_id: DatasetId, session: ReadSession, _actor: Annotated[Actor, allow(Permission.DATASETS_READ)]
) -> DatasetOut:
    return dataset_out(datasets.get(session, dataset_id))


@router.get("/{dataset_id}/rows", summary="Look into a dataset", responses=refusals(404))
def read_rows(
    dataset_id: DatasetId,
    session: ReadSession,
    storage: StorageDep,
    _actor: Annotated[Actor, allow(Permission.DATASETS_READ)],
    after: Annotated[int, Query(ge=0, le=2**53, description="Rows to skip: `n` of the last row seen.")] = 0,
    limit: Annotated[int, Query(ge=1, le=200, description="How many rows at most.")] = 20,
    full: Annotated[bool, Query(description="Whole texts; else they are cut after 1,000 characters.")] = False,
) -> RowPage:
    """Rows as they are stored, in order. Any page is as quick as the first; one of over 8 MiB ends early."""
    dataset = datasets.get(session, dataset_id)
    found, following = datasets.preview(storage, dataset, after, limit, is_full=full)
    return RowPage(data=[_row_out(row) for row in found], has_more=following is not None, next=following)


def _row_out(row: PreviewRow) -> RowOut:
    return RowOut(n=row.n, row=row.row, is_cut=row.is_cut)


@router.head("/{dataset_id}/content", include_in_schema=False)
@router.get(
    "/{dataset_id}/content",
    summary="Download a dataset's rows",
    response_class=Response,
    responses=refusals(404) | {200: {"content": {"application/jsonl": {}}, "description": "The rows, one a line."}},
)
def read_content(
    dataset_id: DatasetId,
    request: Request,
    session: ReadSession,
    storage: StorageDep,
    _actor: Annotated[Actor, allow(Permission.DATASETS_READ)],
) -> Response:
    """The rows as jobs train on them: UTF-8 JSONL. Answers Range, If-Range and If-None-Match."""
    dataset = datasets.get(session, dataset_id)
    stem = dataset.name
    for suffix in SUFFIXES:
        stem = stem.removesuffix(suffix)
    name = file_name(stem, ".jsonl")
    download = Download(name, etag=dataset.sha256, sha256=dataset.sha256, media_type="application/jsonl")
    return answer(request, storage.pin(dataset.storage_key), download)


@router.delete("/{dataset_id}", status_code=204, summary="Delete a dataset", responses=refusals(404, 409))
def delete_dataset(
    dataset_id: DatasetId,
    session: WriteSession,
    storage: StorageDep,
    _actor: Annotated[Actor, allow(Permission.DATASETS_WRITE)],
) -> None:
    """Its rows go for good. Refused (409 `dataset_in_use`) while a job that has not ended needs it."""
    datasets.delete(session, dataset_id)
    after_commit(session, partial(storage.delete_prefix, dataset_prefix(dataset_id)))
