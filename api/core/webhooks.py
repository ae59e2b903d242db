"""Webhooks: who is told of jobs, and what they are to be told, written in the transaction that changed the job.

Sending is in `webhook_sending.py`; it happens outside of every transaction, as often as is needed.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from api.core.addresses import check_url
from api.core.db import now
from api.core.errors import Conflict, Invalid, NotFound
from api.core.ids import is_id, new_id
from api.core.settings import Settings
from api.core.states import State
from api.core.tables import Job
from api.core.webhook_keys import fingerprint, secret_of
from api.core.webhook_messages import DEFAULT_EVENTS, TEST, TYPES, Format, is_wanted, types_of
from api.core.webhook_tables import WebhookDelivery, WebhookEndpoint

MAX_ENDPOINTS = 100
MAX_MESSAGE = 2000


def tell(session: Session, job_id: str, state: State, message: str) -> None:
    """Have every endpoint that wants to know told of a job's new state, once this transaction is committed."""
    query = select(WebhookEndpoint).where(WebhookEndpoint.is_enabled.is_(True), WebhookEndpoint.deleted_at.is_(None))
    endpoints = session.scalars(query).all()
    if not endpoints:
        return
    data = _facts(session, job_id, state, message)
    rows = []
    for event_type in types_of(state):
        event_id = new_id("evt")
        rows += [
            _row(endpoint.id, event_id, event_type, data, job_id)
            for endpoint in endpoints
            if is_wanted(event_type, endpoint.events)
        ]
    if rows:
        session.execute(insert(WebhookDelivery.__table__), rows)  # type: ignore[arg-type]  # declared as FromClause


def _facts(session: Session, job_id: str, state: State, message: str) -> dict[str, Any]:
    query = select(Job.name, Job.method, Job.model_name, Job.attempt, Job.cause).where(Job.id == job_id)
    job = session.execute(query).one()
    return {
        "id": job_id,
        "name": job.name,
        "state": state.value,
        "method": job.method,
        "model": job.model_name,
        "attempt": job.attempt,
        "message": message[:MAX_MESSAGE],
        "cause": job.cause if state is State.FAILED else None,
    }


def _row(endpoint_id: str, event_id: str, event_type: str, data: dict[str, Any], job_id: str | None) -> dict[str, Any]:
    instant = now()
    return {
        "id": new_id("whd"),
        "endpoint_id": endpoint_id,
        "event_id": event_id,
        "type": event_type,
        "job_id": job_id,
        "data": data,
        "state": "pending",
        "n_tries": 0,
        "next_at": instant,
        "tries": [],
        "created_at": instant,
        "ended_at": None,
    }


# Endpoints -----------------------------------------------------------------------------------------------------------


def create(
    session: Session, name: str, url: str, form: Format, events: Sequence[str] | None, actor_id: str, settings: Settings
) -> tuple[WebhookEndpoint, str]:
    """The endpoint and its secret, which is shown this once."""
    check_url(url, allow_private=settings.webhook_private_targets)
    if len(listing(session)) >= MAX_ENDPOINTS:
        raise Conflict(f"there are {MAX_ENDPOINTS} webhooks already; delete one first", code="too_many_webhooks")
    endpoint = WebhookEndpoint(
        id=new_id("whk"),
        name=name,
        url=url,
        format=form.value,
        events=_checked(events) if events else DEFAULT_EVENTS[form],
        is_enabled=True,
        created_at=now(),
        created_by=actor_id,
    )
    secret = rotate(endpoint, settings)
    session.add(endpoint)
    session.flush()
    return endpoint, secret


def rotate(endpoint: WebhookEndpoint, settings: Settings) -> str:
    """A fresh secret, which counts for every message sent from now on; shown this once."""
    endpoint.salt = secrets.token_hex(16)
    secret = secret_of(settings, endpoint.id, endpoint.salt)
    endpoint.secret_sha256 = fingerprint(secret)
    return secret


def _checked(patterns: Sequence[str]) -> list[str]:
    for index, pattern in enumerate(patterns):
        if not any(is_wanted(event_type, [pattern]) for event_type in TYPES):
            expected = f"expected job.*, fine_tuning.job.*, * or one of {', '.join(TYPES)}"
            raise Invalid(f"{pattern[:60]!r} names no event; {expected}", param=f"events[{index}]")
    return list(dict.fromkeys(patterns))


def listing(session: Session) -> list[WebhookEndpoint]:
    query = select(WebhookEndpoint).where(WebhookEndpoint.deleted_at.is_(None)).order_by(WebhookEndpoint.id)
    return list(session.scalars(query))


def get(session: Session, endpoint_id: str) -> WebhookEndpoint:
    endpoint = session.get(WebhookEndpoint, endpoint_id) if is_id(endpoint_id) else None
    if endpoint is None or endpoint.deleted_at is not None:
        raise NotFound("there is no such webhook")
    return endpoint


def change(endpoint: WebhookEndpoint, changes: dict[str, Any], settings: Settings) -> None:
    """`changes` holds new values of name, url, events, is_enabled."""
    if "url" in changes:
        check_url(changes["url"], allow_private=settings.webhook_private_targets)
    if "events" in changes:
        changes = changes | {"events": _checked(changes["events"])}
    if changes.get("is_enabled"):
        endpoint.disabled_reason = None
    for name, value in changes.items():
        setattr(endpoint, name, value)


def delete(session: Session, endpoint_id: str) -> None:
    """Off the list; what it was still to be told is dropped when its turn comes."""
    endpoint = get(session, endpoint_id)
    endpoint.deleted_at = now()
    endpoint.is_enabled = False


# Deliveries ----------------------------------------------------------------------------------------------------------


def add_test(session: Session, endpoint: WebhookEndpoint) -> WebhookDelivery:
    """A message that says that it is a test, to be sent as any other."""
    data = {"id": endpoint.id, "name": endpoint.name, "message": f"The webhook {endpoint.name} is reached."}
    delivery = WebhookDelivery(**_row(endpoint.id, new_id("evt"), TEST, data, None))
    session.add(delivery)
    session.flush()
    return delivery


def deliveries(
    session: Session, endpoint_id: str, after: str | None, limit: int
) -> tuple[list[WebhookDelivery], str | None]:
    """The log of one endpoint, newest first, and the cursor of the page that follows."""
    query = select(WebhookDelivery).where(WebhookDelivery.endpoint_id == endpoint_id)
    if after is not None:
        if not is_id(after):
            raise Invalid("this is no cursor of a log; pass `next` of the page before", param="after")
        query = query.where(WebhookDelivery.id < after)
    found = list(session.scalars(query.order_by(WebhookDelivery.id.desc()).limit(limit + 1)))
    return found[:limit], found[limit - 1].id if len(found) > limit else None


def send_again(session: Session, endpoint_id: str, delivery_id: str) -> WebhookDelivery:
    """Have a message sent once more, at once and with all its tries before it, whatever became of it."""
    delivery = session.get(WebhookDelivery, delivery_id, with_for_update=True) if is_id(delivery_id) else None
    if delivery is None or delivery.endpoint_id != endpoint_id:
        raise NotFound("there is no such delivery")
    delivery.state, delivery.n_tries, delivery.next_at, delivery.ended_at = "pending", 0, now(), None
    session.flush()
    return delivery
