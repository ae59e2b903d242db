"""Tables behind the OpenAI-compatible face: what its requests said beyond a job, and uploads that come in parts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from api.core.columns import ExactJson
from api.core.db import now
from api.core.tables import Base


class FineTune(Base):
    """What a job made over the OpenAI face was asked with and the job's own row has no column for."""

    __tablename__ = "fine_tunes"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    suffix: Mapped[str | None] = mapped_column(String(64), doc="As sent; model names carry a plain form of it.")
    request: Mapped[dict[str, Any]] = mapped_column(ExactJson, doc="The body as sent.")
    created_at: Mapped[datetime] = mapped_column(default=now)


class FineTuneCreate(Base):
    """The newest job that a body of one key made, so that a repeat within minutes is answered with it."""

    __tablename__ = "fine_tune_creates"

    api_key_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    request_sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    created_at: Mapped[datetime] = mapped_column(default=now)


class Upload(Base):
    """A file that comes in parts. `pending` past `expires_at` counts as expired."""

    __tablename__ = "uploads"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    filename: Mapped[str] = mapped_column(String(255))
    purpose: Mapped[str] = mapped_column(String(40))
    mime_type: Mapped[str] = mapped_column(String(200))
    size_bytes: Mapped[int] = mapped_column(doc="As announced; the parts must add up to it.")
    state: Mapped[str] = mapped_column(String(20), doc="pending, completed, cancelled or expired")
    part_ids: Mapped[list[Any]] = mapped_column(default=list, doc="In the order that completed it.")
    dataset_id: Mapped[str | None] = mapped_column(ForeignKey("datasets.id"))
    created_by: Mapped[str] = mapped_column(String(40))
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime] = mapped_column(index=True)


class UploadPart(Base):
    __tablename__ = "upload_parts"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    upload_id: Mapped[str] = mapped_column(ForeignKey("uploads.id", ondelete="CASCADE"), index=True)
    size_bytes: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(default=now)
