"""The attempts of a job as its page shows them: where, how long, how they ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.core.tables import Attempt, Node


@dataclass(frozen=True)
class Shown:
    number: int
    state: str
    node: str
    devices: list[Any]
    start_step: int | None
    placed_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    result: str | None
    cause: dict[str, Any] | None

    @property
    def ran_s(self) -> float | None:
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()


def listing(session: Session, job_id: str) -> list[Shown]:
    """Newest first."""
    query = (
        select(Attempt, Node.name)
        .join(Node, Node.id == Attempt.node_id)
        .where(Attempt.job_id == job_id)
        .order_by(Attempt.number.desc())
    )
    return [_shown(attempt, node) for attempt, node in session.execute(query)]


def _shown(attempt: Attempt, node: str) -> Shown:
    outcome = attempt.outcome or {}
    same = ("number", "state", "devices", "start_step", "placed_at", "started_at", "ended_at")
    facts = {name: getattr(attempt, name) for name in same}
    return Shown(node=node, result=outcome.get("result"), cause=outcome.get("cause"), **facts)
