"""What projects and users may hold: the defaults of the settings, and those that have limits of their own."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Path
from pydantic import BaseModel, Field

from api.core import quotas
from api.core.auth import Actor, Permission
from api.core.planning.model import Limits
from api.core.quota_tables import Quota
from api.core.quotas import QuotaSpec
from api.deps import ReadSession, SettingsDep, WriteSession, allow
from api.schemas import refusals

router = APIRouter(prefix="/v1/limits", tags=["limits"])

Scope = Annotated[Literal["project", "user"], Path(description="A project, or a user: an API key.")]
Name = Annotated[
    str, Path(min_length=1, max_length=64, description="Name of the project, id of the API key.", examples=["vision"])
]
EXAMPLES = {"team": {"summary": "Eight devices, twice the share", "value": {"devices": 8, "queued": 500, "weight": 2}}}


class DefaultLimitsOut(BaseModel):
    devices: int | None = Field(description="Devices held at once; null: as many as there are.")
    running: int | None
    queued: int | None
    device_hours: float | None = Field(description="In the window of the setting limit_window_s.")


class LimitsOut(BaseModel):
    """Limits of one project or user; null: the default."""

    scope: Literal["project", "user"]
    name: str
    devices: int | None
    running: int | None
    queued: int | None
    device_hours: float | None
    weight: float = Field(description="Weight of a project in fair shares.")
    updated_at: datetime


class AllLimitsOut(BaseModel):
    defaults: dict[Literal["project", "user"], DefaultLimitsOut]
    data: list[LimitsOut]


@router.get("", summary="List limits", responses=refusals())
def list_limits(
    session: ReadSession, settings: SettingsDep, _actor: Annotated[Actor, allow(Permission.ADMIN)]
) -> AllLimitsOut:
    """The defaults, and every project and user that has limits of its own."""
    defaults = {scope: _default(limits) for scope, limits in quotas.defaults(settings).items()}
    return AllLimitsOut(defaults=defaults, data=[_out(row) for row in quotas.listing(session)])


@router.put("/{scope}/{name}", summary="Set limits", responses=refusals(400, 404))
def put_limits(
    scope: Scope,
    name: Name,
    spec: Annotated[QuotaSpec, Body(openapi_examples=EXAMPLES)],
    session: WriteSession,
    _actor: Annotated[Actor, allow(Permission.ADMIN)],
) -> LimitsOut:
    """Replaces all of them. What runs goes on, whatever the new limits say; they hold for what starts from now on."""
    return _out(quotas.put(session, (scope, name), spec))


@router.delete("/{scope}/{name}", status_code=204, summary="Back to the defaults", responses=refusals(404))
def delete_limits(
    scope: Scope, name: Name, session: WriteSession, _actor: Annotated[Actor, allow(Permission.ADMIN)]
) -> None:
    quotas.remove(session, (scope, name))


def _default(limits: Limits) -> DefaultLimitsOut:
    return DefaultLimitsOut(**limits._asdict())


def _out(row: Quota) -> LimitsOut:
    return LimitsOut.model_validate(row, from_attributes=True)
