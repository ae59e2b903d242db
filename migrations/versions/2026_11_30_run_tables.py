"""Nodes and devices, attempts, and what a run says and leaves: events, metrics, logs, checkpoints, artifacts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "run_tables"
down_revision = "first_tables"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
EXACT_JSON = sa.JSON(none_as_null=True)
BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    _nodes()
    _attempts()
    _devices()
    _events()
    _metrics()
    _log_chunks()
    _checkpoints()
    _artifacts()


def downgrade() -> None:
    for table in ("artifacts", "checkpoints", "log_chunks", "metrics", "events", "devices", "attempts", "nodes"):
        op.drop_table(table)


def _nodes() -> None:
    op.create_table(
        "nodes",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("facts", JSON, nullable=False),
        sa.Column("beat_at", INSTANT, nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
        sa.UniqueConstraint("name", name=op.f("uq_nodes_name")),
    )


def _attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("node_id", sa.String(length=40), nullable=False),
        sa.Column("devices", JSON, nullable=False),
        sa.Column("supervisor", JSON, nullable=True),
        sa.Column("launcher", JSON, nullable=True),
        sa.Column("run_folder", sa.Text(), nullable=True),
        sa.Column("beat_at", INSTANT, nullable=True),
        sa.Column("start_step", BIG, nullable=True),
        sa.Column("shipped_seq", BIG, nullable=False),
        sa.Column("shipped_logs", JSON, nullable=False),
        sa.Column("outcome", JSON, nullable=True),
        sa.Column("placed_at", INSTANT, nullable=False),
        sa.Column("launched_at", INSTANT, nullable=True),
        sa.Column("started_at", INSTANT, nullable=True),
        sa.Column("trained_from_at", INSTANT, nullable=True),
        sa.Column("ended_at", INSTANT, nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_attempts_job_id_jobs")),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_attempts_node_id_nodes")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_attempts_job_id_number")),
    )
    op.create_index("ix_attempts_state_node", "attempts", ["state", "node_id"])


def _devices() -> None:
    op.create_table(
        "devices",
        sa.Column("node_id", sa.String(length=40), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("uuid", sa.String(length=100), nullable=True),
        sa.Column("memory_bytes", BIG, nullable=True),
        sa.Column("is_present", sa.Boolean(), nullable=False),
        sa.Column("attempt_id", sa.String(length=40), nullable=True),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name=op.f("fk_devices_attempt_id_attempts")),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_devices_node_id_nodes"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node_id", "index", name=op.f("pk_devices")),
    )


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("n", BIG, nullable=False),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("seq", BIG, nullable=True),
        sa.Column("level", sa.String(length=10), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("data", JSON, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_events_job_id_jobs")),
        sa.PrimaryKeyConstraint("job_id", "n", name=op.f("pk_events")),
        sa.UniqueConstraint("job_id", "attempt", "seq", name=op.f("uq_events_job_id_attempt_seq")),
    )


def _metrics() -> None:
    op.create_table(
        "metrics",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("n", BIG, nullable=False),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("seq", BIG, nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("step", BIG, nullable=False),
        sa.Column("epoch", sa.Double(), nullable=True),
        sa.Column("values", EXACT_JSON, nullable=False),
        sa.Column("is_superseded", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_metrics_job_id_jobs")),
        sa.PrimaryKeyConstraint("job_id", "n", name=op.f("pk_metrics")),
        sa.UniqueConstraint("job_id", "attempt", "seq", name=op.f("uq_metrics_job_id_attempt_seq")),
    )
    op.create_index("ix_metrics_job_id_step", "metrics", ["job_id", "step"])


def _log_chunks() -> None:
    op.create_table(
        "log_chunks",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("last_n", BIG, nullable=False),
        sa.Column("first_n", BIG, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_log_chunks_job_id_jobs")),
        sa.PrimaryKeyConstraint("job_id", "last_n", name=op.f("pk_log_chunks")),
    )


def _checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", BIG, nullable=False),
        sa.Column("epoch", sa.Double(), nullable=True),
        sa.Column("storage_prefix", sa.String(length=255), nullable=False),
        sa.Column("manifest", EXACT_JSON, nullable=False),
        sa.Column("manifest_sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", BIG, nullable=False),
        sa.Column("metrics", EXACT_JSON, nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_checkpoints_job_id_jobs")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoints")),
        sa.UniqueConstraint("job_id", "step", name=op.f("uq_checkpoints_job_id_step")),
    )
    op.create_index(op.f("ix_checkpoints_job_id"), "checkpoints", ["job_id"])


def _artifacts() -> None:
    op.create_table(
        "artifacts",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("path", sa.String(length=500), nullable=False),
        sa.Column("storage_key", sa.String(length=700), nullable=False),
        sa.Column("size_bytes", BIG, nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_artifacts_job_id_jobs")),
        sa.PrimaryKeyConstraint("job_id", "path", name=op.f("pk_artifacts")),
    )
