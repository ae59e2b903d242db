"""Engines, which answer prompts with a model while somebody asks, and the replies they write."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from api.core.columns import ExactJson
from api.core.db import now
from api.core.tables import Base


class Engine(Base):
    """One loaded model. Only `api/core/engines.py` changes `state`."""

    __tablename__ = "engines"
    __table_args__ = (Index("ix_engines_state_created_at", "state", "created_at"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    model_name: Mapped[str] = mapped_column(String(300), doc="As it is asked for.")
    target: Mapped[str] = mapped_column(String(120), doc="model:ID, or job:ID:STEP.")
    live_target: Mapped[str | None] = mapped_column(
        String(120), unique=True, doc="The target until it ends: of each there is one engine at a time."
    )
    device: Mapped[str] = mapped_column(String(10), doc="auto, cpu or cuda, as asked for.")
    state: Mapped[str] = mapped_column(String(20), doc="queued, starting, ready or ended")
    node_name: Mapped[str | None] = mapped_column(String(200))
    device_index: Mapped[int | None] = mapped_column(Integer, doc="The CUDA device it holds; null: the CPU.")
    owner: Mapped[str | None] = mapped_column(String(200), doc="The agent's process that holds it.")
    owned_until: Mapped[datetime | None]
    process: Mapped[dict[str, Any] | None] = mapped_column(ExactJson, doc="{pid, started, boot} of the engine.")
    info: Mapped[dict[str, Any]] = mapped_column(ExactJson, default=dict, doc="variants, context_length, notes")
    cause: Mapped[dict[str, Any] | None] = mapped_column(ExactJson, doc="Why it ended, where that was no wish.")
    created_by: Mapped[str] = mapped_column(String(40))
    created_at: Mapped[datetime] = mapped_column(default=now)
    used_at: Mapped[datetime] = mapped_column(default=now)
    ended_at: Mapped[datetime | None]


class Generation(Base):
    """One reply. Its text grows; whoever reads it takes what came after what was read."""

    __tablename__ = "generations"
    __table_args__ = (Index("ix_generations_engine_id_state", "engine_id", "state"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    engine_id: Mapped[str] = mapped_column(ForeignKey("engines.id", ondelete="CASCADE"))
    state: Mapped[str] = mapped_column(String(20), doc="queued, running, succeeded, failed or cancelled")
    prompt: Mapped[dict[str, Any]] = mapped_column(ExactJson, doc="variant, messages, tools, sampling")
    text: Mapped[str] = mapped_column(Text, default="")
    outcome: Mapped[dict[str, Any]] = mapped_column(
        ExactJson, default=dict, doc="finish_reason, tokens and tool calls; or code, message and param"
    )
    wanted_until: Mapped[datetime] = mapped_column(doc="Past this nobody waits for it any more.")
    created_by: Mapped[str] = mapped_column(String(40))
    created_at: Mapped[datetime] = mapped_column(default=now)
    ended_at: Mapped[datetime | None]
