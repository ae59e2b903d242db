"""Rows of events, metrics and logs as the JSON people get: the same in pages and in server-sent events.

Strict JSON always: a figure that is not finite is null, and `nonfinite` says what it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from api.core import events, logs, metrics
from api.core.tables import Event, MetricRow
from api.follow import ReadPage

Item = dict[str, Any]


def instant(at: datetime) -> str:
    """RFC 3339 with Z, as the models of the answers write it."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def event_item(row: Event) -> Item:
    return {
        "n": row.n,
        "at": instant(row.at),
        "level": row.level,
        "kind": row.kind,
        "message": row.message,
        "attempt": row.attempt,
        "data": row.data,
    }


def metric_item(row: MetricRow) -> Item:
    values, nonfinite = split_values(row.values)
    return {
        "n": row.n,
        "at": instant(row.at),
        "kind": row.kind,
        "attempt": row.attempt,
        "step": row.step,
        "epoch": row.epoch,
        "values": values,
        "nonfinite": nonfinite,
    }


def split_values(stored: Mapping[str, float | str]) -> tuple[dict[str, float | None], dict[str, str]]:
    """Figures as stored -> (figures with null for what is not finite, what those were)."""
    nonfinite = {name: value for name, value in stored.items() if isinstance(value, str)}
    values = {name: None if isinstance(value, str) else value for name, value in stored.items()}
    return values, nonfinite


def log_item(line: Item) -> Item:
    return {**line, "at": line["at"].replace("+00:00", "Z")}


def _read_events(session: Session, job_id: str, after: int, limit: int) -> list[Item]:
    return [event_item(row) for row in events.read(session, job_id, after, limit)]


def _read_metrics(session: Session, job_id: str, after: int, limit: int) -> list[Item]:
    return [metric_item(row) for row in metrics.read(session, job_id, after, limit)]


def _read_logs(session: Session, job_id: str, after: int, limit: int) -> list[Item]:
    return [log_item(line) for line in logs.read(session, job_id, after, limit)]


READERS: Mapping[str, ReadPage] = {"event": _read_events, "metric": _read_metrics, "log": _read_logs}
