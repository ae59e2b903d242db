"""Columns of a job that the scheduler looks at; `Job` in `tables.py` takes them in."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Boolean, String
from sqlalchemy.orm import Mapped, mapped_column


class ScheduleColumns:
    """Taken in by `Job`."""

    project: Mapped[str] = mapped_column(String(64), default="default", doc="Whose share and limits it counts against.")
    is_preemptible: Mapped[bool] = mapped_column(
        Boolean, default=False, doc="May be stopped at a checkpoint for a higher priority."
    )
    constraints: Mapped[dict[str, Any]] = mapped_column(
        default=dict,
        doc="What its devices must be: {device, min_memory_bytes, labels}; null and absent ask for nothing.",
    )
