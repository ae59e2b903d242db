"""Published schemas: what an editor completes a job file by."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter

from api.core.auth import Actor, Permission
from api.core.job_schema import job_schema
from api.deps import allow
from api.schemas import refusals

router = APIRouter(prefix="/v1/schemas", tags=["schemas"])


@router.get("/job", summary="JSON schema of a job body", responses=refusals())
def read_job_schema(_actor: Annotated[Actor, allow(Permission.JOBS_READ)]) -> dict[str, Any]:
    """Draft 2020-12; `trainyard schema` writes it to a file for editors."""
    return job_schema()
