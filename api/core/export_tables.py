"""Exports of a job's checkpoints: what was asked, who works on it, and the files that came of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from api.core.columns import ExactJson
from api.core.db import now
from api.core.tables import Base


class Export(Base):
    """One export. Only `api/core/exports.py` changes `state`."""

    __tablename__ = "exports"
    __table_args__ = (Index("ix_exports_state_created_at", "state", "created_at"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    step: Mapped[int] = mapped_column(doc="Of the checkpoint; best and last are settled when it is asked for.")
    kind: Mapped[str] = mapped_column(String(20), doc="adapter, merged, fp32 or full")
    dtype: Mapped[str] = mapped_column(String(20))
    max_shard_size: Mapped[str] = mapped_column(String(20))
    state: Mapped[str] = mapped_column(String(20), doc="queued, running, succeeded, failed or cancelled")
    owner: Mapped[str | None] = mapped_column(String(200), doc="Who works on it.")
    owned_until: Mapped[datetime | None] = mapped_column(doc="Past this it is taken over by another.")
    n_tries: Mapped[int] = mapped_column(Integer, default=0)
    storage_prefix: Mapped[str | None] = mapped_column(String(255), doc="Where its files are, once it has succeeded.")
    files: Mapped[list[Any]] = mapped_column(ExactJson, default=list, doc="[{path, size_bytes, sha256}]")
    size_bytes: Mapped[int] = mapped_column(default=0)
    proof: Mapped[dict[str, Any]] = mapped_column(ExactJson, default=dict, doc="ExportReport.proof")
    cause: Mapped[dict[str, Any] | None] = mapped_column(ExactJson, doc="trainer_core.contract.Cause, when it failed.")
    created_by: Mapped[str] = mapped_column(String(40))
    created_at: Mapped[datetime] = mapped_column(default=now)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
