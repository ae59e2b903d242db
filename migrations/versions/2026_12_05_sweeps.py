"""Sweeps of hyperparameters and their trials."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "sweeps"
down_revision = "engines"
branch_labels = None
depends_on = None

EXACT_JSON = sa.JSON(none_as_null=True)
BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "sweeps",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("spec", EXACT_JSON, nullable=False),
        sa.Column("metric", sa.String(length=100), nullable=False),
        sa.Column("greater_is_better", sa.Boolean(), nullable=False),
        sa.Column("n_trials", sa.Integer(), nullable=False),
        sa.Column("labels", EXACT_JSON, nullable=False),
        sa.Column("notes", EXACT_JSON, nullable=False),
        sa.Column("cause", EXACT_JSON, nullable=True),
        sa.Column("request_sha256", sa.String(length=64), nullable=False),
        sa.Column("idempotency_key", sa.String(length=255), nullable=True),
        sa.Column("created_by", sa.String(length=40), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("finished_at", INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sweeps")),
        sa.UniqueConstraint("created_by", "idempotency_key", name=op.f("uq_sweeps_created_by_idempotency_key")),
    )
    op.create_index("ix_sweeps_state", "sweeps", ["state"])
    op.create_table(
        "sweep_trials",
        sa.Column("sweep_id", sa.String(length=40), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("values", EXACT_JSON, nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=True),
        sa.Column("rungs", EXACT_JSON, nullable=False),
        sa.Column("pruned_at_step", BIG, nullable=True),
        sa.Column("reason", sa.String(length=500), nullable=True),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("value_step", BIG, nullable=True),
        sa.Column("settled_at", INSTANT, nullable=True),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_sweep_trials_job_id_jobs")),
        sa.ForeignKeyConstraint(
            ["sweep_id"], ["sweeps.id"], name=op.f("fk_sweep_trials_sweep_id_sweeps"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("sweep_id", "number", name=op.f("pk_sweep_trials")),
        sa.UniqueConstraint("job_id", name=op.f("uq_sweep_trials_job_id")),
    )


def downgrade() -> None:
    op.drop_table("sweep_trials")
    op.drop_table("sweeps")
