"""The table of limits that differ from the settings."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Float, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from api.core.db import now
from api.core.tables import Base


class Quota(Base):
    """What one project or user may hold; null: the default of the settings. Its row is also the lock of its counts."""

    __tablename__ = "quotas"

    scope: Mapped[str] = mapped_column(String(10), primary_key=True, doc="project or user")
    name: Mapped[str] = mapped_column(String(64), primary_key=True, doc="Name of the project, id of the API key.")
    devices: Mapped[int | None] = mapped_column(Integer)
    running: Mapped[int | None] = mapped_column(Integer)
    queued: Mapped[int | None] = mapped_column(Integer)
    device_hours: Mapped[float | None] = mapped_column(Float)
    weight: Mapped[float] = mapped_column(Float, default=1.0, doc="Of a project in fair shares.")
    updated_at: Mapped[datetime] = mapped_column(default=now)
