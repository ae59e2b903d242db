"""Tables of webhooks: where messages go, and each message with its tries."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from api.core.columns import ExactJson
from api.core.db import now
from api.core.tables import Base


class WebhookEndpoint(Base):
    """An address that is told of jobs. Its secret is in no row: it follows from the service's key and the salt."""

    __tablename__ = "webhook_endpoints"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    url: Mapped[str] = mapped_column(Text)
    format: Mapped[str] = mapped_column(String(20), doc="standard, json, slack or teams")
    events: Mapped[list[Any]] = mapped_column(doc="Patterns of event types, such as job.*")
    is_enabled: Mapped[bool] = mapped_column(Boolean, default=True)
    disabled_reason: Mapped[str | None] = mapped_column(Text)
    salt: Mapped[str] = mapped_column(String(64))
    secret_sha256: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(default=now)
    created_by: Mapped[str] = mapped_column(String(40))
    deleted_at: Mapped[datetime | None]


class WebhookDelivery(Base):
    """One message for one endpoint, written in the transaction that changed the job; tried until it is taken."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        Index("ix_webhook_deliveries_state_next_at", "state", "next_at"),
        Index("ix_webhook_deliveries_endpoint_id_id", "endpoint_id", "id"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True, doc="The webhook-id: the same in every try.")
    endpoint_id: Mapped[str] = mapped_column(ForeignKey("webhook_endpoints.id"))
    event_id: Mapped[str] = mapped_column(String(40), doc="The same for every endpoint.")
    type: Mapped[str] = mapped_column(String(60))
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    data: Mapped[dict[str, Any]] = mapped_column(ExactJson, doc="What happened, as of then.")
    state: Mapped[str] = mapped_column(String(20), doc="pending, delivered or failed")
    n_tries: Mapped[int] = mapped_column(Integer, default=0)
    next_at: Mapped[datetime] = mapped_column(doc="Not tried before; while a try is under way, when it counts as lost.")
    tries: Mapped[list[Any]] = mapped_column(ExactJson, default=list, doc="{at, status, error, took_s} of each try.")
    created_at: Mapped[datetime] = mapped_column(default=now)
    ended_at: Mapped[datetime | None]
