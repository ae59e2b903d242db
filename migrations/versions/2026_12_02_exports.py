"""Exports of checkpoints."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "exports"
down_revision = "scheduling"
branch_labels = None
depends_on = None

EXACT_JSON = sa.JSON(none_as_null=True)
BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "exports",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("step", BIG, nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("dtype", sa.String(length=20), nullable=False),
        sa.Column("max_shard_size", sa.String(length=20), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("owner", sa.String(length=200), nullable=True),
        sa.Column("owned_until", INSTANT, nullable=True),
        sa.Column("n_tries", sa.Integer(), nullable=False),
        sa.Column("storage_prefix", sa.String(length=255), nullable=True),
        sa.Column("files", EXACT_JSON, nullable=False),
        sa.Column("size_bytes", BIG, nullable=False),
        sa.Column("proof", EXACT_JSON, nullable=False),
        sa.Column("cause", EXACT_JSON, nullable=True),
        sa.Column("created_by", sa.String(length=40), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("started_at", INSTANT, nullable=True),
        sa.Column("finished_at", INSTANT, nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_exports_job_id_jobs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_exports")),
    )
    op.create_index(op.f("ix_exports_job_id"), "exports", ["job_id"])
    op.create_index("ix_exports_state_created_at", "exports", ["state", "created_at"])


def downgrade() -> None:
    op.drop_table("exports")
