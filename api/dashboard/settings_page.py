"""The settings page: API keys, webhooks with what was sent to them, and the service's own settings."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from api.core import keys, webhooks
from api.core.auth import ROLES, Actor, Permission
from api.core.errors import NotFound
from api.core.settings import Settings
from api.core.webhook_messages import Format
from api.dashboard.access import allow_page
from api.dashboard.render import page
from api.deps import ReadSession, SettingsDep
from api.routes.keys import state_of
from api.routes.webhooks import shown_url

router = APIRouter(include_in_schema=False, prefix="/settings")

DELIVERIES = 50
Admin = Annotated[Actor, allow_page(Permission.ADMIN)]


@router.get("")
def show_settings(request: Request, session: ReadSession, settings: SettingsDep, actor: Admin) -> Response:
    shown = settings.shown()
    rows = [(name, shown[name], field.description or "") for name, field in Settings.model_fields.items()]
    return page(
        "settings.html",
        request,
        actor,
        rows=rows,
        keys=[(row, state_of(row), keys.permissions_of(row)) for row in keys.listing(session)],
        roles=sorted(ROLES),
        permissions=[str(permission) for permission in Permission],
        webhooks=[(row, shown_url(row)) for row in webhooks.listing(session)],
        formats=[str(form) for form in Format],
    )


@router.get("/webhooks/{webhook_id}")
def show_webhook(
    webhook_id: str,
    request: Request,
    session: ReadSession,
    actor: Admin,
    after: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """What was sent to one webhook, newest first."""
    try:
        webhook = webhooks.get(session, webhook_id)
    except NotFound:
        return page("error.html", request, actor, status=404, heading="No such webhook", message="It may be deleted.")
    found, cursor = webhooks.deliveries(session, webhook_id, after, DELIVERIES)
    return page(
        "webhook.html", request, actor, webhook=webhook, url=shown_url(webhook), deliveries=found, cursor=cursor
    )
