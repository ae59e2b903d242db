"""Keys, models, datasets, jobs with their labels and idempotency keys, leases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "first_tables"
down_revision = None
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
EXACT_JSON = sa.JSON(none_as_null=True)
BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    _api_keys()
    _browser_sessions()
    _models()
    _datasets()
    _leases()
    _jobs()
    _job_labels()
    _idempotency_keys()


def downgrade() -> None:
    for table in (
        "idempotency_keys",
        "job_labels",
        "jobs",
        "leases",
        "datasets",
        "models",
        "browser_sessions",
        "api_keys",
    ):
        op.drop_table(table)


def _api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("role", sa.String(length=20), nullable=False),
        sa.Column("key_sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("revoked_at", INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("key_sha256", name=op.f("uq_api_keys_key_sha256")),
    )


def _browser_sessions() -> None:
    op.create_table(
        "browser_sessions",
        sa.Column("token_sha256", sa.String(length=64), nullable=False),
        sa.Column("api_key_id", sa.String(length=40), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("expires_at", INSTANT, nullable=False),
        sa.ForeignKeyConstraint(["api_key_id"], ["api_keys.id"], name=op.f("fk_browser_sessions_api_key_id_api_keys")),
        sa.PrimaryKeyConstraint("token_sha256", name=op.f("pk_browser_sessions")),
    )


def _models() -> None:
    op.create_table(
        "models",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("revision", sa.String(length=200), nullable=True),
        sa.Column("details", JSON, nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("deleted_at", INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("name", name=op.f("uq_models_name")),
    )


def _datasets() -> None:
    op.create_table(
        "datasets",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("format", sa.String(length=40), nullable=True),
        sa.Column("n_rows", BIG, nullable=False),
        sa.Column("size_bytes", BIG, nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("storage_key", sa.String(length=255), nullable=False),
        sa.Column("report", JSON, nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("created_by", sa.String(length=40), nullable=False),
        sa.Column("deleted_at", INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
    )
    op.create_index(op.f("ix_datasets_created_at"), "datasets", ["created_at"])


def _leases() -> None:
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("holder", sa.String(length=200), nullable=False),
        sa.Column("until", INSTANT, nullable=False),
        sa.Column("since", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("health", sa.String(length=20), nullable=False),
        sa.Column("phase", sa.String(length=20), nullable=True),
        sa.Column("method", sa.String(length=40), nullable=False),
        sa.Column("model_name", sa.String(length=200), nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("resolved", JSON, nullable=False),
        sa.Column("preflight", JSON, nullable=True),
        sa.Column("cause", JSON, nullable=True),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("notes", sa.Text(), nullable=True),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("n_devices", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("n_failures", sa.Integer(), nullable=False),
        sa.Column("stop", sa.String(length=20), nullable=True),
        sa.Column("planned_steps", BIG, nullable=True),
        sa.Column("step", BIG, nullable=False),
        sa.Column("epoch", sa.Double(), nullable=True),
        sa.Column("eta_s", sa.Double(), nullable=True),
        sa.Column("progressed_at", INSTANT, nullable=True),
        sa.Column("latest", EXACT_JSON, nullable=False),
        sa.Column("best_step", BIG, nullable=True),
        sa.Column("best_value", sa.Double(), nullable=True),
        sa.Column("last_event_n", BIG, nullable=False),
        sa.Column("last_metric_n", BIG, nullable=False),
        sa.Column("last_log_n", BIG, nullable=False),
        sa.Column("preflight_owner", sa.String(length=200), nullable=True),
        sa.Column("preflight_until", INSTANT, nullable=True),
        sa.Column("n_preflights", sa.Integer(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("created_by", sa.String(length=40), nullable=False),
        sa.Column("queued_at", INSTANT, nullable=True),
        sa.Column("started_at", INSTANT, nullable=True),
        sa.Column("finished_at", INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index(op.f("ix_jobs_created_at"), "jobs", ["created_at"])
    op.create_index(op.f("ix_jobs_name"), "jobs", ["name"])
    op.create_index("ix_jobs_state_priority_queued_at", "jobs", ["state", "priority", "queued_at"])


def _job_labels() -> None:
    op.create_table(
        "job_labels",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("value", sa.String(length=512), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_labels_job_id_jobs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "key", name=op.f("pk_job_labels")),
    )
    op.create_index("ix_job_labels_key_value", "job_labels", ["key", "value"])


def _idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("api_key_id", sa.String(length=40), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("request_sha256", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_idempotency_keys_job_id_jobs")),
        sa.PrimaryKeyConstraint("api_key_id", "key", name=op.f("pk_idempotency_keys")),
    )
