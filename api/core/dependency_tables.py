"""Which jobs wait for which: rows of their own, so that the waiting ones are found by a join."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Integer
from sqlalchemy.orm import Mapped, mapped_column

from api.core.tables import Base


class JobDependency(Base):
    """`job_id` starts once `needs_id` has succeeded."""

    __tablename__ = "job_dependencies"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    needs_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True, index=True)
    position: Mapped[int] = mapped_column(Integer, doc="Place in the body's list.")
