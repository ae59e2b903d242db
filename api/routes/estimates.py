"""Estimates: what a job would need, without making it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body
from pydantic import Field

from api.core import estimates, models
from api.core.auth import Actor, Permission
from api.core.estimated import JobEstimate, StrategyOut
from api.core.resolve import resolve
from api.core.specs import JobSpec
from api.deps import ReadSession, SettingsDep, allow
from api.routes.jobs import EXAMPLES
from api.schemas import refusals
from trainer_core.contract import ParallelSpec

router = APIRouter(prefix="/v1/estimates", tags=["jobs"])


class EstimateOut(JobEstimate):
    """What the job would need, and what every other strategy would."""

    parallel: ParallelSpec = Field(description="As the job would run; strategy is never auto.")
    strategies: list[StrategyOut] = Field(description="The fastest first; empty where the model's size is not known.")


@router.post("", summary="Estimate a job", responses=refusals(400, 413))
def estimate(
    spec: Annotated[JobSpec, Body(openapi_examples=EXAMPLES)],
    session: ReadSession,
    settings: SettingsDep,
    _actor: Annotated[Actor, allow(Permission.JOBS_READ)],
) -> EstimateOut:
    """Takes the body of a job and checks it in the same way; nothing is made. A job that fits nowhere is answered too,
    with its numbers."""
    resolved = resolve(session, spec, settings, refuse_misfits=False).resolved
    assert resolved.estimate is not None
    listed = estimates.compare(session, resolved, models.get(session, spec.model), spec.resources)
    return EstimateOut(**dict(resolved.estimate), parallel=resolved.parallel, strategies=listed)
