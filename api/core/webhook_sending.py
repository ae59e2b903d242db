"""Sending of webhooks: due messages are claimed, sent outside of any transaction, and what came of it is written down.

A claim is a lease: a sender that dies is followed by another. So a message may come twice, under the same webhook-id.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlunsplit

import httpx
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from api.core.addresses import Refused, check_url, resolve
from api.core.db import Database, now
from api.core.errors import Invalid
from api.core.settings import Settings
from api.core.webhook_keys import fingerprint, secret_of, sign
from api.core.webhook_messages import Format, body_of
from api.core.webhook_tables import WebhookDelivery, WebhookEndpoint

# Seconds before each further try: ten in all, over about 35 hours, as Standard Webhooks advises.
WAITS_S = (5, 30, 120, 600, 1800, 7200, 18_000, 36_000, 61_200)
TIMEOUT_S = 10.0
LEASE_S = 60.0
MAX_CLAIMED = 16
MAX_OF_ONE = 4  # of one endpoint at once: one that hangs must not keep the others waiting
KEPT = timedelta(days=30)
SIGNED = frozenset({Format.STANDARD, Format.JSON})
GONE = 410


@dataclass(frozen=True)
class Message:
    """One claimed delivery with all that is needed to send it. `until` proves the claim."""

    id: str
    until: datetime
    url: str
    format: Format
    secret: str
    is_own_secret: bool
    body: bytes


@dataclass(frozen=True)
class Try:
    """What came of one try. `status` null: there was no answer."""

    at: datetime
    status: int | None
    error: str | None
    took_s: float

    @property
    def is_taken(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def has_due(session: Session) -> bool:
    """Whether anything is to be sent now; asks without the writers' lock."""
    query = select(WebhookDelivery.id).where(WebhookDelivery.state == "pending", WebhookDelivery.next_at <= now())
    return session.scalar(query.limit(1)) is not None


def claim(session: Session, settings: Settings, *, only: str | None = None) -> list[Message]:
    """Due messages, for one sender until its lease is over. Those of endpoints that are off are dropped."""
    instant = now()
    is_due = (WebhookDelivery.state == "pending", WebhookDelivery.next_at <= instant)
    place = func.row_number().over(partition_by=WebhookDelivery.endpoint_id, order_by=WebhookDelivery.next_at)
    due = select(WebhookDelivery.id, WebhookDelivery.next_at, place.label("place")).where(*is_due)
    if only is not None:
        due = due.where(WebhookDelivery.id == only)
    ranked = due.subquery()
    chosen = select(ranked.c.id).where(ranked.c.place <= MAX_OF_ONE).order_by(ranked.c.next_at).limit(MAX_CLAIMED)
    query = (
        select(WebhookDelivery, WebhookEndpoint)
        .join(WebhookEndpoint, WebhookEndpoint.id == WebhookDelivery.endpoint_id)
        .where(WebhookDelivery.id.in_(chosen), *is_due)
        .with_for_update(skip_locked=True, of=WebhookDelivery)
    )
    taken: list[Message] = []
    for delivery, endpoint in session.execute(query).all():
        if endpoint.deleted_at is not None or not endpoint.is_enabled:
            delivery.state, delivery.ended_at = "failed", instant
            delivery.tries = [*delivery.tries, _entry(Try(instant, None, "the webhook is switched off", 0.0))]
        else:
            delivery.next_at = instant + timedelta(seconds=LEASE_S)
            delivery.n_tries += 1
            taken.append(_message(delivery, endpoint, settings))
    session.flush()
    return taken


def _message(delivery: WebhookDelivery, endpoint: WebhookEndpoint, settings: Settings) -> Message:
    secret, form = secret_of(settings, endpoint.id, endpoint.salt), Format(endpoint.format)
    return Message(
        id=delivery.id,
        until=delivery.next_at,
        url=endpoint.url,
        format=form,
        secret=secret,
        is_own_secret=fingerprint(secret) == endpoint.secret_sha256,
        body=body_of(form, delivery.event_id, delivery.type, delivery.created_at, delivery.data),
    )


def send(message: Message, settings: Settings) -> Try:
    """One try. Never raises for what the other side does."""
    at, began = now(), time.monotonic()
    status: int | None = None
    error: str | None = None
    try:
        status = _post(message, settings, at)
        error = None if 200 <= status < 300 else f"answered {status}"
    except (Refused, Invalid, httpx.HTTPError, httpx.InvalidURL) as problem:
        # Only the kind of a transport's error: its words may hold the URL, whose path can be a secret.
        ours = isinstance(problem, Refused | Invalid)
        error = str(problem) if ours else f"no answer ({type(problem).__name__})"
    return Try(at, status, error, round(time.monotonic() - began, 3))


def _post(message: Message, settings: Settings, at: datetime) -> int:
    if not message.is_own_secret:
        raise Refused("this node has another webhook key than the one the secret was made with (webhook_key)")
    parts = check_url(message.url, allow_private=settings.webhook_private_targets)
    address = resolve(parts, allow_private=settings.webhook_private_targets)
    literal = f"[{address}]" if ":" in address else address
    target = urlunsplit(
        (parts.scheme, literal + (f":{parts.port}" if parts.port else ""), parts.path or "/", parts.query, "")
    )
    stamp = int(at.timestamp())
    headers = {
        "Host": parts.netloc,
        "Content-Type": "application/json",
        "User-Agent": "Trainyard-Webhooks/1",
        "webhook-id": message.id,
        "webhook-timestamp": str(stamp),
    }
    if message.format in SIGNED:
        headers["webhook-signature"] = sign(message.secret, message.id, stamp, message.body)
    # No proxy of the environment, which would look the name up again, and no redirect, which would lead elsewhere.
    with httpx.Client(trust_env=False, follow_redirects=False, timeout=TIMEOUT_S) as client:
        extensions = {"sni_hostname": parts.hostname} if parts.scheme == "https" else {}
        request = client.build_request("POST", target, content=message.body, headers=headers, extensions=extensions)
        answer = client.send(request, stream=True)  # the body is not read: nobody needs it, and it may be endless
        answer.close()
    return answer.status_code


def settle(session: Session, message: Message, result: Try) -> None:
    """Write down what came of a try, and when the next one is. Dropped where another sender has it meanwhile."""
    delivery = session.get(WebhookDelivery, message.id, with_for_update=True, populate_existing=True)
    if delivery is None or delivery.state != "pending" or delivery.next_at != message.until:
        return
    delivery.tries = [*delivery.tries, _entry(result)]
    if result.is_taken:
        delivery.state, delivery.ended_at = "delivered", now()
    elif result.status == GONE:
        delivery.state, delivery.ended_at = "failed", now()
        endpoint = session.get_one(WebhookEndpoint, delivery.endpoint_id)
        endpoint.is_enabled, endpoint.disabled_reason = False, "the other side answered 410: it is gone for good"
    elif delivery.n_tries > len(WAITS_S):
        delivery.state, delivery.ended_at = "failed", now()
    else:
        delivery.next_at = now() + timedelta(seconds=WAITS_S[delivery.n_tries - 1])
    session.flush()


def _entry(result: Try) -> dict[str, Any]:
    return {"at": result.at.isoformat(), "status": result.status, "error": result.error, "took_s": result.took_s}


def send_one(database: Database, settings: Settings, delivery_id: str) -> None:
    """Send one message now, if it is due and nobody else is at it."""
    with database.session() as session:
        messages = claim(session, settings, only=delivery_id)
    for message in messages:
        result = send(message, settings)
        with database.session() as session:
            settle(session, message, result)


def tidy(session: Session) -> None:
    """Forget what ended long ago."""
    session.execute(delete(WebhookDelivery).where(WebhookDelivery.ended_at < now() - KEPT))
