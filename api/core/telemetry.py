"""What a run says: its records become events, metric rows and the job's progress; its log lines become chunks.

Both are taken over once, however often they are sent: the attempt's row is locked and says how far it has come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from api.core import events, logs, progress
from api.core.clean import clean_text
from api.core.db import now
from api.core.errors import Invalid
from api.core.events import NewEvent
from api.core.fencing import live
from api.core.logs import LogLine
from api.core.messages import event_for
from api.core.moves import move
from api.core.states import AttemptState, Health, State
from api.core.tables import Attempt, Job, MetricRow
from trainer_core.contract import AnyRecord, Done, Evaluated, Metrics, Phase, PhaseChanged, Planned, Started, Stopped


@dataclass(slots=True)
class _Batch:
    """What a batch of records amounts to, gathered before anything is written."""

    events: list[NewEvent] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    job: dict[str, Any] = field(default_factory=dict)
    attempt: dict[str, Any] = field(default_factory=dict)
    latest: dict[str, float | str] = field(default_factory=dict)
    newest: progress.Mark | None = None


def take_records(session: Session, attempt_id: str, records: Sequence[AnyRecord], *, at: datetime | None = None) -> int:
    """Takes over the attempt's records and returns the number of the last one taken.

    Records taken before are skipped; a gap in their numbers raises Invalid, and a fenced attempt Lost. `started`
    moves the job to running.
    """
    attempt, job = live(session, attempt_id)
    fresh = [record for record in records if record.seq > attempt.shipped_seq]
    _refuse_gap(attempt.shipped_seq, fresh)
    batch = _Batch()
    for record in fresh:
        if isinstance(record, Started):
            _start(session, attempt, job, record, batch)
        _gather(record, batch)
    _write(session, attempt, job, batch, shipped_seq=attempt.shipped_seq + len(fresh), at=at or now())
    return attempt.shipped_seq


def _refuse_gap(shipped_seq: int, fresh: Sequence[AnyRecord]) -> None:
    for expected, record in enumerate(fresh, shipped_seq + 1):
        if record.seq != expected:
            raise Invalid(
                f"expected record {expected} next, found {record.seq}: send every record of events.jsonl in order",
                code="records_out_of_order",
            )


def _start(session: Session, attempt: Attempt, job: Job, record: Started, batch: _Batch) -> None:
    """The trainer spoke: the job runs, and rows of the steps it will do again are superseded."""
    resumed = record.resumed_from_step or 0
    batch.attempt |= {"state": AttemptState.RUNNING.value, "start_step": resumed, "started_at": record.at}
    batch.job |= {"step": resumed, "epoch": None, "eta_s": None}
    superseded = update(MetricRow).where(MetricRow.job_id == job.id, MetricRow.attempt < attempt.number)
    if resumed:
        superseded = superseded.where(MetricRow.step > resumed)
    session.execute(superseded.values(is_superseded=True).execution_options(synchronize_session=False))
    event = event_for(record)
    # Events before this one are written first, so that their numbers are in order. A job that is being cancelled
    # stays what it is, and has the event all the same.
    events.append(session, job.id, batch.events)
    batch.events.clear()
    if event and not move(session, job.id, State.RUNNING, event, attempt=attempt.number):
        batch.events.append(event)


def _gather(record: AnyRecord, batch: _Batch) -> None:
    match record:
        case Metrics() | Evaluated():
            _gather_row(record, batch)
        case PhaseChanged():
            batch.job["phase"] = record.phase.value
            if record.phase is Phase.TRAINING:
                batch.attempt.setdefault("trained_from_at", record.at)
        case Planned():
            batch.job["planned_steps"] = record.total_steps
        case Done() | Stopped():
            batch.newest = progress.Mark(record.at, record.step)
    event = event_for(record)
    if event is not None and not isinstance(record, Started):
        batch.events.append(event)


def _gather_row(record: Metrics | Evaluated, batch: _Batch) -> None:
    values = {
        _clean_name(name): value if isinstance(value, float) else clean_text(value)
        for name, value in record.values.items()
    }
    batch.rows.append(
        {
            "at": record.at,
            "seq": record.seq,
            "kind": "train" if isinstance(record, Metrics) else "eval",
            "step": record.step,
            "epoch": record.epoch,
            "values": values,
        }
    )
    batch.latest |= values
    if record.epoch is not None:
        batch.job["epoch"] = record.epoch
    batch.newest = progress.Mark(record.at, record.step)


_clean_name = lru_cache(maxsize=4096)(clean_text)


def _write(session: Session, attempt: Attempt, job: Job, batch: _Batch, *, shipped_seq: int, at: datetime) -> None:
    if attempt.trained_from_at is not None:
        batch.attempt.pop("trained_from_at", None)
    for column, value in (batch.attempt | {"shipped_seq": shipped_seq, "beat_at": at}).items():
        setattr(attempt, column, value)
    if job.health == Health.UNREACHABLE:
        batch.events.append(heard_again())
    changes = batch.job | {"health": Health.OK.value}
    if batch.latest:
        changes["latest"] = {**job.latest, **batch.latest}
    if batch.newest is not None:
        planned = changes.get("planned_steps", job.planned_steps)
        changes |= {"step": batch.newest.step, "progressed_at": batch.newest.at}
        changes["eta_s"] = progress.eta_s(planned, batch.newest, _recent(session, attempt, batch), _began(attempt))
    taken = session.execute(
        update(Job)
        .where(Job.id == job.id)
        .values(
            last_event_n=Job.last_event_n + len(batch.events),
            last_metric_n=Job.last_metric_n + len(batch.rows),
            **changes,
        )
        .returning(Job.last_event_n, Job.last_metric_n)
        .execution_options(synchronize_session=False)
    ).one()
    if batch.events:
        events.write(session, job.id, batch.events, last_n=taken.last_event_n, attempt=attempt.number)
    if batch.rows:
        first_n = taken.last_metric_n - len(batch.rows) + 1
        own = {"job_id": job.id, "attempt": attempt.number, "is_superseded": False}
        rows = [{"n": n, **own, **row} for n, row in enumerate(batch.rows, first_n)]
        session.execute(insert(MetricRow.__table__), rows)  # type: ignore[arg-type]  # the declared type is FromClause
    session.expire(job)


def _recent(session: Session, attempt: Attempt, batch: _Batch) -> progress.Mark | None:
    """The oldest mark among the newest rows of this attempt, those of this batch included."""
    train = [row for row in batch.rows if row["kind"] == "train"]
    missing = progress.WINDOW_ROWS - len(train)
    if missing <= 0:
        return _mark(train[-progress.WINDOW_ROWS])
    window = (
        select(MetricRow.at, MetricRow.step)
        .where(MetricRow.job_id == attempt.job_id, MetricRow.attempt == attempt.number, MetricRow.kind == "train")
        .order_by(MetricRow.n.desc())
        .limit(missing)
    )
    written = session.execute(window).all()
    if written:
        return progress.Mark(written[-1].at, written[-1].step)
    return _mark(train[0]) if train else None


def _mark(row: Mapping[str, Any]) -> progress.Mark:
    return progress.Mark(row["at"], row["step"])


def _began(attempt: Attempt) -> progress.Mark | None:
    if attempt.trained_from_at is None:
        return None
    return progress.Mark(attempt.trained_from_at, attempt.start_step or 0)


def heard_again() -> NewEvent:
    return NewEvent("reachable", "The run is heard of again")


def take_logs(
    session: Session,
    attempt_id: str,
    lines: Sequence[LogLine],
    offsets: Mapping[str, int],
    before: Mapping[str, int] | None = None,
    *,
    at: datetime | None = None,
) -> dict[str, int]:
    """Takes over log lines; `offsets` says how many bytes of each file have been read once they are in.

    Returns the offsets that hold now. Lines sent again (every offset is reached already), or read from elsewhere than
    the stored offsets when `before` says so, are not written: go on reading from the answer. Raises Lost.
    """
    attempt, job = live(session, attempt_id)
    stored: dict[str, int] = dict(attempt.shipped_logs)
    attempt.beat_at = at or now()
    repeated = all(stored.get(name, 0) >= offset for name, offset in offsets.items())
    elsewhere = before is not None and any(stored.get(name, 0) != offset for name, offset in before.items())
    if repeated or elsewhere:
        return stored
    logs.append(session, job.id, attempt.number, lines)
    attempt.shipped_logs = {**stored, **offsets}
    session.expire(job)
    return dict(attempt.shipped_logs)
