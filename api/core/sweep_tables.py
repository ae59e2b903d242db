"""Sweeps of hyperparameters and their trials. A trial is an ordinary job; what is kept here is which values it got."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, ForeignKey, Index, Integer, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from api.core.columns import ExactJson
from api.core.db import now
from api.core.tables import Base


class Sweep(Base):
    """One search. Only `api/core/sweeps.py` and `api/core/sweep_round.py` change `state`."""

    __tablename__ = "sweeps"
    __table_args__ = (UniqueConstraint("created_by", "idempotency_key"), Index("ix_sweeps_state", "state"))

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    state: Mapped[str] = mapped_column(String(20), doc="running, cancelling, succeeded, failed or cancelled")
    spec: Mapped[dict[str, Any]] = mapped_column(ExactJson, doc="SweepSpec, the job's datasets named by id.")
    metric: Mapped[str] = mapped_column(String(100))
    greater_is_better: Mapped[bool] = mapped_column(Boolean)
    n_trials: Mapped[int] = mapped_column(Integer, doc="How many there will be.")
    labels: Mapped[dict[str, Any]] = mapped_column(ExactJson, default=dict)
    notes: Mapped[list[Any]] = mapped_column(
        ExactJson, default=list, doc="What was defaulted, and what was not checked."
    )
    cause: Mapped[dict[str, Any] | None] = mapped_column(ExactJson, doc="{code, message, hint}, when it failed.")
    request_sha256: Mapped[str] = mapped_column(String(64))
    idempotency_key: Mapped[str | None] = mapped_column(String(255))
    created_by: Mapped[str] = mapped_column(String(40))
    created_at: Mapped[datetime] = mapped_column(default=now)
    finished_at: Mapped[datetime | None]


class SweepTrial(Base):
    """One point of the search. Its state is that of its job; one whose job was refused has none, and a cause."""

    __tablename__ = "sweep_trials"

    sweep_id: Mapped[str] = mapped_column(ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    values: Mapped[dict[str, Any]] = mapped_column(ExactJson, doc="Parameter path -> value.")
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"), unique=True)
    rungs: Mapped[list[Any]] = mapped_column(
        ExactJson, default=list, doc="Rungs reached, in order: {rung, step, value, keeps}; value null: not finite."
    )
    pruned_at_step: Mapped[int | None]
    reason: Mapped[str | None] = mapped_column(String(500), doc="Why it was stopped early, or not made.")
    value: Mapped[float | None] = mapped_column(doc="The objective, once its job is over; null: none, or not finite.")
    value_step: Mapped[int | None]
    settled_at: Mapped[datetime | None] = mapped_column(doc="When the objective was taken from the ended job.")
    created_at: Mapped[datetime] = mapped_column(default=now)
