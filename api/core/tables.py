"""The tables. Columns only: what moves a row is in the module named after it.

Instants are UTC and aware on both databases. JSON columns hold strict JSON: no NaN, no infinity.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, ForeignKey, Index, Integer, MetaData, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from api.core.columns import BigInt, ExactJson, Instant, Json
from api.core.db import now
from api.core.key_columns import KeyColumns
from api.core.life_columns import LifeColumns
from api.core.schedule_columns import ScheduleColumns


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {datetime: Instant, dict[str, Any]: Json, list[Any]: Json, int: BigInt}


class ApiKey(KeyColumns, Base):
    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    role: Mapped[str] = mapped_column(String(20))
    key_sha256: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=now)


class BrowserSession(Base):
    """A dashboard login. The cookie holds the token, the row only its digest."""

    __tablename__ = "browser_sessions"

    token_sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    api_key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"))
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime]


class BaseModel(Base):
    """A registered base model."""

    __tablename__ = "models"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    source: Mapped[str] = mapped_column(Text, doc="An absolute folder, or a hub id.")
    revision: Mapped[str | None] = mapped_column(String(200))
    details: Mapped[dict[str, Any]] = mapped_column(default=dict, doc="From its config.json; n_parameters; size_bytes.")
    created_at: Mapped[datetime] = mapped_column(default=now)
    deleted_at: Mapped[datetime | None]


class Dataset(Base):
    __tablename__ = "datasets"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(255), doc="The file's name as sent, NFC; never a path.")
    format: Mapped[str | None] = mapped_column(String(40), doc="Null: a job must map the columns.")
    n_rows: Mapped[int]
    size_bytes: Mapped[int]
    sha256: Mapped[str] = mapped_column(String(64), doc="Of the normalised rows.")
    storage_key: Mapped[str] = mapped_column(String(255))
    report: Mapped[dict[str, Any]] = mapped_column(doc="trainer_core.data.rows.DatasetReport as JSON.")
    created_at: Mapped[datetime] = mapped_column(default=now, index=True)
    created_by: Mapped[str] = mapped_column(String(40))
    deleted_at: Mapped[datetime | None]


class Job(LifeColumns, ScheduleColumns, Base):
    """A job. Only `api/core/moves.py` changes `state`."""

    __tablename__ = "jobs"
    __table_args__ = (Index("ix_jobs_state_priority_queued_at", "state", "priority", "queued_at"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), index=True)
    state: Mapped[str] = mapped_column(String(20))
    health: Mapped[str] = mapped_column(String(20), default="ok")
    phase: Mapped[str | None] = mapped_column(String(20))
    method: Mapped[str] = mapped_column(String(40))
    model_name: Mapped[str] = mapped_column(String(200))
    spec: Mapped[dict[str, Any]] = mapped_column(doc="JobSpec as sent, defaults filled in.")
    resolved: Mapped[dict[str, Any]] = mapped_column(doc="What the run really uses: api.core.specs.Resolved as JSON.")
    preflight: Mapped[dict[str, Any] | None] = mapped_column(doc="PreflightReport, once there is one.")
    cause: Mapped[dict[str, Any] | None] = mapped_column(doc="trainer_core.contract.Cause, when it failed.")
    labels: Mapped[dict[str, Any]] = mapped_column(default=dict)
    notes: Mapped[str | None] = mapped_column(Text)
    priority: Mapped[int] = mapped_column(Integer, default=0)
    n_devices: Mapped[int] = mapped_column(Integer, default=1)
    attempt: Mapped[int] = mapped_column(Integer, default=0, doc="Number of the newest attempt; 0 before the first.")
    n_failures: Mapped[int] = mapped_column(Integer, default=0, doc="Attempts ended by a fault that is not the user's.")
    stop: Mapped[str | None] = mapped_column(String(20), doc="The wish to stop: a StopRequest's reason.")
    planned_steps: Mapped[int | None]
    step: Mapped[int] = mapped_column(default=0)
    epoch: Mapped[float | None]
    eta_s: Mapped[float | None] = mapped_column(doc="Seconds of training left, as of progressed_at.")
    progressed_at: Mapped[datetime | None]
    latest: Mapped[dict[str, Any]] = mapped_column(ExactJson, default=dict, doc="Newest value of each metric.")
    best_step: Mapped[int | None]
    best_value: Mapped[float | None]
    last_event_n: Mapped[int] = mapped_column(default=0, doc="Cursor of the newest event; gap-free within the job.")
    last_metric_n: Mapped[int] = mapped_column(default=0)
    last_log_n: Mapped[int] = mapped_column(default=0)
    preflight_owner: Mapped[str | None] = mapped_column(String(200))
    preflight_until: Mapped[datetime | None]
    n_preflights: Mapped[int] = mapped_column(Integer, default=0, doc="Times a preflight was begun.")
    created_at: Mapped[datetime] = mapped_column(default=now, index=True)
    created_by: Mapped[str] = mapped_column(String(40))
    queued_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class JobLabel(Base):
    """Labels once more, one a row, so that lists can be filtered by them."""

    __tablename__ = "job_labels"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(String(512))

    __table_args__ = (Index("ix_job_labels_key_value", "key", "value"),)


class Attempt(Base):
    """One try at a job: its devices, its processes, how it ended."""

    __tablename__ = "attempts"
    __table_args__ = (UniqueConstraint("job_id", "number"), Index("ix_attempts_state_node", "state", "node_id"))

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    number: Mapped[int] = mapped_column(Integer)
    state: Mapped[str] = mapped_column(String(20))
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"))
    devices: Mapped[list[Any]] = mapped_column(doc="Device indexes on the node, in rank order.")
    supervisor: Mapped[dict[str, Any] | None] = mapped_column(
        doc="{pid, started}: a process identity that survives pid reuse."
    )
    launcher: Mapped[dict[str, Any] | None] = mapped_column(doc="{pid, started} of the launcher's session leader.")
    run_folder: Mapped[str | None] = mapped_column(Text)
    beat_at: Mapped[datetime | None] = mapped_column(doc="Newest word of the supervisor.")
    start_step: Mapped[int | None] = mapped_column(doc="Step it resumed from; 0 for a fresh start.")
    shipped_seq: Mapped[int] = mapped_column(default=0, doc="Records of events.jsonl taken over so far.")
    shipped_logs: Mapped[dict[str, Any]] = mapped_column(default=dict, doc="Log file name -> bytes taken over so far.")
    outcome: Mapped[dict[str, Any] | None] = mapped_column(doc="{result, exit_code, signal, cause}")
    placed_at: Mapped[datetime] = mapped_column(default=now)
    launched_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    trained_from_at: Mapped[datetime | None] = mapped_column(doc="When it began to train; its pace counts from here.")
    ended_at: Mapped[datetime | None] = mapped_column(index=True)


class Node(Base):
    __tablename__ = "nodes"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    state: Mapped[str] = mapped_column(String(20))
    labels: Mapped[dict[str, Any]] = mapped_column(default=dict)
    facts: Mapped[dict[str, Any]] = mapped_column(default=dict, doc="Versions, cores, memory_bytes, load.")
    hold: Mapped[str | None] = mapped_column(String(20), doc="draining or cordoned: its state whenever it answers.")
    beat_at: Mapped[datetime]
    created_at: Mapped[datetime] = mapped_column(default=now)


class Device(Base):
    """One GPU or one CPU slot. `attempt_id` is set by a placement and cleared after proof that the run is gone."""

    __tablename__ = "devices"

    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id", ondelete="CASCADE"), primary_key=True)
    index: Mapped[int] = mapped_column(Integer, primary_key=True)
    kind: Mapped[str] = mapped_column(String(10), doc="cpu or cuda")
    name: Mapped[str] = mapped_column(String(200))
    uuid: Mapped[str | None] = mapped_column(String(100))
    memory_bytes: Mapped[int | None]
    is_present: Mapped[bool] = mapped_column(Boolean, default=True)
    attempt_id: Mapped[str | None] = mapped_column(ForeignKey("attempts.id"))
    engine_id: Mapped[str | None] = mapped_column(String(40), doc="The engine that answers prompts with it.")


class Event(Base):
    """What happened to a job, in order. `n` counts within the job without gaps."""

    __tablename__ = "events"
    __table_args__ = (UniqueConstraint("job_id", "attempt", "seq"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    n: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    attempt: Mapped[int | None] = mapped_column(Integer)
    seq: Mapped[int | None] = mapped_column(doc="Number of the trainer's record; null for the service's own events.")
    level: Mapped[str] = mapped_column(String(10))
    kind: Mapped[str] = mapped_column(String(40))
    message: Mapped[str] = mapped_column(Text)
    data: Mapped[dict[str, Any]] = mapped_column(default=dict)


class MetricRow(Base):
    """All figures of one record: one row a step, not one a point. Non-finite values are strings."""

    __tablename__ = "metrics"
    __table_args__ = (UniqueConstraint("job_id", "attempt", "seq"), Index("ix_metrics_job_id_step", "job_id", "step"))

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    n: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    attempt: Mapped[int] = mapped_column(Integer)
    seq: Mapped[int]
    kind: Mapped[str] = mapped_column(String(10), doc="train or eval")
    step: Mapped[int]
    epoch: Mapped[float | None]
    values: Mapped[dict[str, Any]] = mapped_column(ExactJson)
    is_superseded: Mapped[bool] = mapped_column(Boolean, default=False, doc="A later attempt did this step again.")


class LogChunk(Base):
    """Consecutive log lines of a job, `first_n`..`last_n`, as JSON lines {n, at, source, rank, text}."""

    __tablename__ = "log_chunks"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    last_n: Mapped[int] = mapped_column(primary_key=True)
    first_n: Mapped[int]
    attempt: Mapped[int] = mapped_column(Integer)
    body: Mapped[str] = mapped_column(Text)


class Checkpoint(Base):
    """A complete checkpoint in storage. Best is `jobs.best_step`, last is the highest step of the newest attempt."""

    __tablename__ = "checkpoints"
    __table_args__ = (UniqueConstraint("job_id", "step"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    attempt: Mapped[int] = mapped_column(Integer)
    step: Mapped[int]
    epoch: Mapped[float | None]
    storage_prefix: Mapped[str] = mapped_column(String(255))
    manifest: Mapped[dict[str, Any]] = mapped_column(ExactJson)
    manifest_sha256: Mapped[str] = mapped_column(String(64))
    size_bytes: Mapped[int]
    metrics: Mapped[dict[str, Any]] = mapped_column(ExactJson, default=dict)
    created_at: Mapped[datetime] = mapped_column(default=now)


class Artifact(Base):
    """A file the run left behind, in storage: results, plots, card, raw logs."""

    __tablename__ = "artifacts"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    path: Mapped[str] = mapped_column(String(500), primary_key=True)
    storage_key: Mapped[str] = mapped_column(String(700))
    size_bytes: Mapped[int]
    sha256: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(default=now)


class IdempotencyKey(Base):
    """What a request with this key was answered, so that a repeat gets the same job."""

    __tablename__ = "idempotency_keys"

    api_key_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    request_sha256: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    created_at: Mapped[datetime] = mapped_column(default=now)


class Lease(Base):
    """Who leads, until when: the scheduler's single leader."""

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    holder: Mapped[str] = mapped_column(String(200))
    until: Mapped[datetime]
    since: Mapped[datetime] = mapped_column(doc="Held without a gap from then on, by one holder or several.")
