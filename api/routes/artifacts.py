"""Files a run left besides its checkpoints; listed and read also while it runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, Field

from api.core import artifacts
from api.core.auth import Actor, Permission
from api.core.tables import Artifact
from api.deps import JobId, ReadSession, StorageDep, allow
from api.downloads import OCTETS, Download, answer, file_name, media_type
from api.schemas import Page, refusals

router = APIRouter(prefix="/v1/jobs/{job_id}/artifacts", tags=["artifacts"])


class ArtifactOut(BaseModel):
    path: str = Field(examples=["all_results.json"])
    size_bytes: int
    sha256: str
    media_type: str = Field(description="What it is answered as. HTML and SVG are plain text: they run nothing here.")
    created_at: datetime


def artifact_out(artifact: Artifact) -> ArtifactOut:
    return ArtifactOut(
        path=artifact.path,
        size_bytes=artifact.size_bytes,
        sha256=artifact.sha256,
        media_type=media_type(artifact.path),
        created_at=artifact.created_at,
    )


@router.get("", summary="A job's files", responses=refusals(404))
def list_artifacts(
    job_id: JobId, session: ReadSession, _actor: Annotated[Actor, allow(Permission.JOBS_READ)]
) -> Page[ArtifactOut]:
    """Results, plots, model card, raw logs: what is stored so far, by path."""
    data = [artifact_out(artifact) for artifact in artifacts.listing(session, job_id)]
    return Page(data=data, has_more=False, next=None)


@router.head("/{path:path}", include_in_schema=False)
@router.get(
    "/{path:path}",
    summary="One file of a job",
    response_class=Response,
    responses=refusals(404) | {200: {"content": {OCTETS: {}}, "description": "The bytes."}},
)
def read_artifact(
    job_id: JobId,
    path: Annotated[str, Path(description="As on the job's list of files.", examples=["all_results.json"])],
    request: Request,
    session: ReadSession,
    storage: StorageDep,
    _actor: Annotated[Actor, allow(Permission.JOBS_READ)],
) -> Response:
    """Answers Range, If-Range, If-None-Match and HEAD. Texts and images are shown in place, the rest is downloaded."""
    artifact = artifacts.pick(session, job_id, path)
    kind = media_type(path)
    download = Download(
        file_name(path.rpartition("/")[2], ""),
        etag=artifact.sha256,
        sha256=artifact.sha256,
        media_type=kind,
        is_inline=kind != OCTETS,
    )
    return answer(request, artifacts.pin(storage, artifact), download)
