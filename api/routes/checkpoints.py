"""A job's checkpoints: the list, single files by range, and the whole of one as a tar or zip."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field

from api.archives import Member, Tar, Zip
from api.core import checkpoints
from api.core.auth import Actor, Permission
from api.core.checkpoints import Listed, job_of
from api.core.errors import NotFound
from api.core.storage import Pinned
from api.deps import JobId, Parts, PartsDep, ReadSession, allow
from api.downloads import Download, answer, file_name, media_type
from api.schemas import Page, refusals
from api.wire import split_values

router = APIRouter(prefix="/v1/jobs/{job_id}/checkpoints", tags=["checkpoints"])

TRIES = 3
T = TypeVar("T")
Which = Annotated[str, Path(description="`best`, `last`, or a step on the list.", examples=["best"])]
BINARY: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "The bytes."}
}


class FileOut(BaseModel):
    path: str = Field(examples=["adapter_model.safetensors"])
    size_bytes: int
    sha256: str


class CheckpointOut(BaseModel):
    step: int
    epoch: float | None
    attempt: int
    is_best: bool = Field(description="Best by the job's metric, among finite values.")
    is_last: bool
    size_bytes: int
    n_files: int
    files: list[FileOut] = Field(description="Its manifest; each is at `files/PATH` below the checkpoint.")
    manifest_sha256: str
    metrics: dict[str, float | None] = Field(description="Newest figures at this step; null: not finite.")
    nonfinite: dict[str, str]
    created_at: datetime
    archive_url: str = Field(description="The whole checkpoint as one file.")


def checkpoint_out(listed: Listed) -> CheckpointOut:
    row = listed.checkpoint
    values, nonfinite = split_values(row.metrics)
    return CheckpointOut(
        step=row.step,
        epoch=row.epoch,
        attempt=row.attempt,
        is_best=listed.is_best,
        is_last=listed.is_last,
        size_bytes=row.size_bytes,
        n_files=len(listed.manifest.files),
        files=[FileOut(**file.model_dump()) for file in listed.manifest.files],
        manifest_sha256=row.manifest_sha256,
        metrics=values,
        nonfinite=nonfinite,
        created_at=row.created_at,
        archive_url=f"/v1/jobs/{row.job_id}/checkpoints/{row.step}/archive",
    )


@router.get("", summary="A job's checkpoints", responses=refusals(404))
def list_checkpoints(
    job_id: JobId, session: ReadSession, _actor: Annotated[Actor, allow(Permission.JOBS_READ)]
) -> Page[CheckpointOut]:
    """All of them, by step. A checkpoint is listed once its files are stored and verified, also while the job runs."""
    data = [checkpoint_out(listed) for listed in checkpoints.listing(session, job_id)]
    return Page(data=data, has_more=False, next=None)


@router.head("/{which}/files/{path:path}", include_in_schema=False)
@router.get(
    "/{which}/files/{path:path}",
    summary="One file of a checkpoint",
    response_class=Response,
    responses=refusals(404) | BINARY,
)
def read_file(
    job_id: JobId,
    which: Which,
    path: Annotated[str, Path(description="As on the checkpoint's list.", examples=["adapter_config.json"])],
    request: Request,
    parts: PartsDep,
    _actor: Annotated[Actor, allow(Permission.JOBS_READ)],
) -> Response:
    """Answers Range, If-Range, If-None-Match and HEAD; the ETag is the file's sha256 from the manifest."""
    (pinned, file), _name = _opened(
        parts, job_id, which, lambda listed: checkpoints.pin_file(parts.storage, listed, path)
    )
    name = file_name(path.rpartition("/")[2], "")
    return answer(request, pinned, Download(name, etag=file.sha256, sha256=file.sha256, media_type=media_type(path)))


@router.head("/{which}/archive", include_in_schema=False)
@router.get(
    "/{which}/archive",
    summary="A whole checkpoint",
    response_class=Response,
    responses=refusals(404)
    | {200: {"content": {"application/x-tar": {}, "application/zip": {}}, "description": "The archive."}},
)
def read_archive(
    job_id: JobId,
    which: Which,
    request: Request,
    parts: PartsDep,
    _actor: Annotated[Actor, allow(Permission.JOBS_READ)],
    format: Annotated[
        Literal["tar", "zip"], Query(description="tar can be resumed by Range; zip opens everywhere.")
    ] = "tar",
) -> Response:
    """Every file with its manifest, in a folder `checkpoint-STEP`, uncompressed: weights do not compress.

    Made while it is sent. A tar has an ETag and answers Range: ask for the step and not for `last` to resume one.
    """

    def pin(listed: Listed) -> tuple[Listed, list[tuple[str, Pinned]]]:
        return listed, checkpoints.pin_all(parts.storage, listed)

    (listed, files), job_name = _opened(parts, job_id, which, pin)
    row = listed.checkpoint
    members = [Member(f"checkpoint-{row.step}/{path}", pinned) for path, pinned in files]
    name = file_name(job_name, f"-step-{row.step}.{format}")
    if format == "zip":
        return answer(request, Zip(members), Download(name, media_type="application/zip", has_ranges=False))
    etag = f"tar-{row.manifest_sha256}"
    return answer(request, Tar(members, row.created_at), Download(name, etag=etag, media_type="application/x-tar"))


def _opened(parts: Parts, job_id: str, which: str, pin: Callable[[Listed], T]) -> tuple[T, str]:
    """What `pin` opened of the checkpoint, and the job's name. `best` and `last` may move on between the row and
    the files, whose old ones then go: look again."""
    for left in reversed(range(TRIES)):
        with parts.database.reading() as session:
            listed, name = checkpoints.pick(session, job_id, which), job_of(session, job_id).name
        try:
            return pin(listed), name
        except NotFound:
            if not left:
                raise
    raise AssertionError("the last try either answers or raises")
