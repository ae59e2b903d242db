"""A job's exports: weights made of its checkpoints by a run of their own, listed, cancelled, downloaded."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path, Query, Request, Response
from pydantic import BaseModel, Field

from api.archives import Member, Tar, Zip
from api.core import exports
from api.core.auth import Actor, Permission
from api.core.checkpoints import job_of
from api.core.export_tables import Export
from api.core.exports import ExportSpec, ExportState
from api.deps import JobId, PartsDep, ReadSession, StorageDep, WriteSession, after_commit, allow
from api.downloads import Download, answer, file_name, media_type
from api.routes.checkpoints import BINARY, FileOut
from api.schemas import Page, refusals

router = APIRouter(prefix="/v1/jobs/{job_id}/exports", tags=["exports"])

Reader = Annotated[Actor, allow(Permission.JOBS_READ)]
Writer = Annotated[Actor, allow(Permission.JOBS_WRITE)]
ExportId = Annotated[str, Path(description="The export's id.", examples=["exp_01k3f9c8w4m1q7x2s5v8zt"])]
EXAMPLES = {
    "merged": {"summary": "Base and adapter in one", "value": {"kind": "merged", "dtype": "bfloat16"}},
    "step": {"summary": "The adapter of a step", "value": {"kind": "adapter", "checkpoint": 100}},
}


class ExportOut(BaseModel):
    id: str
    job_id: str
    step: int
    kind: str
    dtype: str
    max_shard_size: str
    state: ExportState
    cause: dict[str, Any] | None = Field(description="Why it failed: {code, message, hint, param, ...}.")
    proof: dict[str, Any] = Field(description="Largest difference of logits in each comparison, and what is allowed.")
    n_tries: int
    size_bytes: int
    files: list[FileOut] = Field(description="Each is at `files/PATH` below the export.")
    archive_url: str | None = Field(description="All files as one; null until it has succeeded.")
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


def export_out(row: Export) -> ExportOut:
    names = ("id", "job_id", "step", "kind", "dtype", "max_shard_size", "cause", "proof", "n_tries", "size_bytes")
    is_ready = row.state == ExportState.SUCCEEDED
    return ExportOut(
        **{name: getattr(row, name) for name in (*names, "created_at", "started_at", "finished_at")},
        state=ExportState(row.state),
        files=[FileOut(**file) for file in row.files],
        archive_url=f"/v1/jobs/{row.job_id}/exports/{row.id}/archive" if is_ready else None,
    )


@router.post("", status_code=201, summary="Export a checkpoint", responses=refusals(400, 404))
def create_export(
    job_id: JobId,
    spec: Annotated[ExportSpec, Body(openapi_examples=EXAMPLES)],
    session: WriteSession,
    actor: Writer,
    response: Response,
) -> ExportOut:
    """Made on a CPU beside the trainings. It has succeeded once what was written was loaded again and gave the same
    logits as the checkpoint. `best` and `last` are settled now."""
    row = exports.create(session, job_id, spec, actor)
    response.headers["Location"] = f"/v1/jobs/{job_id}/exports/{row.id}"
    return export_out(row)


@router.get("", summary="A job's exports", responses=refusals(404))
def list_exports(job_id: JobId, session: ReadSession, _actor: Reader) -> Page[ExportOut]:
    """Newest first."""
    return Page(data=[export_out(row) for row in exports.listing(session, job_id)], has_more=False, next=None)


@router.get("/{export_id}", summary="An export", responses=refusals(404))
def read_export(job_id: JobId, export_id: ExportId, session: ReadSession, _actor: Reader) -> ExportOut:
    return export_out(exports.get(session, job_id, export_id))


@router.post("/{export_id}/cancel", summary="Cancel an export", responses=refusals(404, 409))
def cancel_export(job_id: JobId, export_id: ExportId, session: WriteSession, actor: Writer) -> ExportOut:
    """Cancelled at once; its process ends within seconds and leaves no file."""
    return export_out(exports.cancel(session, job_id, export_id, actor))


@router.delete("/{export_id}", status_code=204, summary="Delete an export", responses=refusals(404, 409))
def delete_export(
    job_id: JobId, export_id: ExportId, session: WriteSession, storage: StorageDep, _actor: Writer
) -> None:
    """Takes its files away. What is being downloaded is sent to its end."""
    prefix = exports.delete(session, job_id, export_id)
    after_commit(session, partial(storage.delete_prefix, prefix))


@router.head("/{export_id}/files/{path:path}", include_in_schema=False)
@router.get(
    "/{export_id}/files/{path:path}",
    summary="One file of an export",
    response_class=Response,
    responses=refusals(404) | BINARY,
)
def read_export_file(
    job_id: JobId,
    export_id: ExportId,
    path: Annotated[str, Path(description="As on the export's list.", examples=["config.json"])],
    request: Request,
    parts: PartsDep,
    _actor: Reader,
) -> Response:
    """Answers Range, If-Range, If-None-Match and HEAD; the ETag is the file's sha256."""
    with parts.database.reading() as session:
        row = exports.get(session, job_id, export_id)
    pinned, file = exports.pin_file(parts.storage, row, path)
    name = file_name(path.rpartition("/")[2], "")
    return answer(request, pinned, Download(name, etag=file.sha256, sha256=file.sha256, media_type=media_type(path)))


@router.head("/{export_id}/archive", include_in_schema=False)
@router.get(
    "/{export_id}/archive",
    summary="A whole export",
    response_class=Response,
    responses=refusals(404)
    | {200: {"content": {"application/x-tar": {}, "application/zip": {}}, "description": "The archive."}},
)
def read_export_archive(
    job_id: JobId,
    export_id: ExportId,
    request: Request,
    parts: PartsDep,
    _actor: Reader,
    format: Annotated[
        Literal["tar", "zip"], Query(description="tar can be resumed by Range; zip opens everywhere.")
    ] = "tar",
) -> Response:
    """Every file in a folder named after step and kind, uncompressed. Made while it is sent."""
    with parts.database.reading() as session:
        row, name = exports.get(session, job_id, export_id), job_of(session, job_id).name
    folder = f"step-{row.step}-{row.kind}"
    members = [Member(f"{folder}/{path}", pinned) for path, pinned in exports.pin_all(parts.storage, row)]
    filename = file_name(name, f"-{folder}.{format}")
    if format == "zip":
        return answer(request, Zip(members), Download(filename, media_type="application/zip", has_ranges=False))
    made_at = row.finished_at or row.created_at
    return answer(
        request, Tar(members, made_at), Download(filename, etag=f"tar-{row.id}", media_type="application/x-tar")
    )
