"""Webhooks: addresses that are told of jobs, their secrets, the log of what was sent, a message to try it."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from api.core import webhook_sending, webhooks
from api.core.auth import Actor, Permission
from api.core.specs import Name
from api.core.webhook_messages import Format
from api.core.webhook_tables import WebhookDelivery, WebhookEndpoint
from api.deps import Limit, PartsDep, ReadSession, SettingsDep, WriteSession, allow
from api.schemas import Page, refusals

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])

WebhookId = Annotated[str, Path(description="The webhook's id.")]
Reader = Annotated[Actor, allow(Permission.WEBHOOKS_READ)]
Writer = Annotated[Actor, allow(Permission.WEBHOOKS_WRITE)]
Events = Annotated[list[Annotated[str, Field(max_length=60)]], Field(min_length=1, max_length=40)]
EXAMPLES = {
    "signed": {"summary": "Signed", "value": {"name": "our service", "url": "https://hooks.example.com/trainyard"}},
    "slack": {
        "summary": "A Slack channel",
        "value": {
            "name": "#training",
            "url": "https://hooks.slack.com/services/T/B/X",
            "format": "slack",
            "events": ["job.succeeded", "job.failed"],
        },
    },
}


class WebhookIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Name
    url: Annotated[str, Field(max_length=2000)]
    format: Format = Field(default=Format.STANDARD, description="standard: signed, as Standard Webhooks and OpenAI.")
    events: Events | None = Field(default=None, description="As `job.failed` or `job.*`; null: the format's usual.")


class WebhookChange(BaseModel):
    """What is to be changed; a key that is left out stays as it is."""

    model_config = ConfigDict(extra="forbid")

    name: Name = ""
    url: Annotated[str, Field(max_length=2000)] = ""
    events: Events = []
    is_enabled: bool = True


class WebhookOut(BaseModel):
    id: str
    name: str
    url: str = Field(description="Of Slack and Teams only the host: the rest of such a URL is a secret.")
    format: Format
    events: list[str]
    is_enabled: bool
    disabled_reason: str | None
    created_at: datetime


class WebhookWithSecret(WebhookOut):
    secret: str = Field(description="Shown this once. Check signatures with it.")


class DeliveryOut(BaseModel):
    id: str = Field(description="The header webhook-id: the same in every try.")
    event_id: str
    type: str
    job_id: str | None
    state: str = Field(description="pending, delivered or failed")
    n_tries: int
    next_at: datetime | None = Field(description="When it is tried next; null once it is over.")
    tries: list[dict[str, Any]] = Field(description="{at, status, error, took_s} of each try.")
    created_at: datetime
    ended_at: datetime | None


def shown_url(row: WebhookEndpoint) -> str:
    """Of Slack and Teams only the host: the rest of such a URL is a secret."""
    is_secret = row.format in (Format.SLACK, Format.TEAMS)
    return re.sub(r"^(\w+://[^/?]+).*$", r"\1/…", row.url) if is_secret else row.url


def _out(row: WebhookEndpoint) -> dict[str, Any]:
    same = ("id", "name", "format", "events", "is_enabled", "disabled_reason", "created_at")
    return {"url": shown_url(row)} | {name: getattr(row, name) for name in same}


def _delivery(row: WebhookDelivery) -> DeliveryOut:
    same = ("id", "event_id", "type", "job_id", "state", "n_tries", "tries", "created_at", "ended_at")
    shown = {name: getattr(row, name) for name in same}
    return DeliveryOut(**shown, next_at=row.next_at if row.state == "pending" else None)


@router.post("", status_code=201, summary="Add a webhook", responses=refusals(400, 409, 413))
def create_webhook(
    body: Annotated[WebhookIn, Body(openapi_examples=EXAMPLES)],
    session: WriteSession,
    settings: SettingsDep,
    actor: Writer,
    response: Response,
) -> WebhookWithSecret:
    """Told of every change of state from now on. Private targets are refused unless the operator allows them."""
    row, secret = webhooks.create(session, body.name, body.url, body.format, body.events, actor.id, settings)
    response.headers["Location"] = f"/v1/webhooks/{row.id}"
    return WebhookWithSecret(**_out(row), secret=secret)


@router.get("", summary="List webhooks", responses=refusals())
def list_webhooks(session: ReadSession, _actor: Reader) -> Page[WebhookOut]:
    """All of them, oldest first."""
    data = [WebhookOut(**_out(row)) for row in webhooks.listing(session)]
    return Page(data=data, has_more=False, next=None)


@router.get("/{webhook_id}", summary="A webhook", responses=refusals(404))
def read_webhook(webhook_id: WebhookId, session: ReadSession, _actor: Reader) -> WebhookOut:
    return WebhookOut(**_out(webhooks.get(session, webhook_id)))


@router.patch("/{webhook_id}", summary="Change a webhook", responses=refusals(400, 404, 413))
def change_webhook(
    webhook_id: WebhookId,
    body: Annotated[WebhookChange, Body(openapi_examples={"off": {"value": {"is_enabled": False}}})],
    session: WriteSession,
    settings: SettingsDep,
    _actor: Writer,
) -> WebhookOut:
    row = webhooks.get(session, webhook_id)
    webhooks.change(row, body.model_dump(exclude_unset=True), settings)
    return WebhookOut(**_out(row))


@router.delete("/{webhook_id}", status_code=204, summary="Delete a webhook", responses=refusals(404))
def delete_webhook(webhook_id: WebhookId, session: WriteSession, _actor: Writer) -> None:
    """Nothing more is sent to it; what waits is dropped."""
    webhooks.delete(session, webhook_id)


@router.post("/{webhook_id}/rotate-secret", summary="A fresh secret", responses=refusals(404))
def rotate_secret(
    webhook_id: WebhookId, session: WriteSession, settings: SettingsDep, _actor: Writer
) -> WebhookWithSecret:
    """Counts for everything sent from now on."""
    row = webhooks.get(session, webhook_id)
    secret = webhooks.rotate(row, settings)
    return WebhookWithSecret(**_out(row), secret=secret)


@router.post("/{webhook_id}/test", summary="Send a test message", responses=refusals(404))
def send_test(webhook_id: WebhookId, parts: PartsDep, _actor: Writer) -> DeliveryOut:
    """Sent at once; the answer is its entry in the log, with what the other side said."""
    with parts.database.session() as session:
        delivery_id = webhooks.add_test(session, webhooks.get(session, webhook_id)).id
    webhook_sending.send_one(parts.database, parts.settings, delivery_id)
    with parts.database.reading() as session:
        return _delivery(session.get_one(WebhookDelivery, delivery_id))


@router.get("/{webhook_id}/deliveries", summary="What was sent", responses=refusals(404))
def list_deliveries(
    webhook_id: WebhookId,
    session: ReadSession,
    _actor: Reader,
    after: Annotated[str | None, Query(max_length=100, description="`next` of the page before.")] = None,
    limit: Limit = 50,
) -> Page[DeliveryOut]:
    """Newest first, with every try; kept for 30 days."""
    webhooks.get(session, webhook_id)
    found, cursor = webhooks.deliveries(session, webhook_id, after, limit)
    return Page(data=[_delivery(row) for row in found], has_more=cursor is not None, next=cursor)


@router.post("/{webhook_id}/deliveries/{delivery_id}/retry", summary="Send once more", responses=refusals(404))
def send_again(
    webhook_id: WebhookId,
    delivery_id: Annotated[str, Path(description="As in the log.")],
    session: WriteSession,
    _actor: Writer,
) -> DeliveryOut:
    """Whatever became of it, it is due again now."""
    webhooks.get(session, webhook_id)
    return _delivery(webhooks.send_again(session, webhook_id, delivery_id))
