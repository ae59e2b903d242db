"""Scheduling: projects, preemption and constraints of jobs, limits of projects and users, attempts by their end."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "scheduling"
down_revision = "life_cycle"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("project", sa.String(length=64), nullable=False, server_default="default"))
    op.add_column("jobs", sa.Column("is_preemptible", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("jobs", sa.Column("constraints", JSON, nullable=False, server_default=sa.text("'{}'")))
    op.create_index(op.f("ix_attempts_ended_at"), "attempts", ["ended_at"])
    op.create_table(
        "quotas",
        sa.Column("scope", sa.String(length=10), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("devices", sa.Integer(), nullable=True),
        sa.Column("running", sa.Integer(), nullable=True),
        sa.Column("queued", sa.Integer(), nullable=True),
        sa.Column("device_hours", sa.Float(), nullable=True),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("scope", "name", name=op.f("pk_quotas")),
    )


def downgrade() -> None:
    op.drop_table("quotas")
    op.drop_index(op.f("ix_attempts_ended_at"), table_name="attempts")
    for column in ("constraints", "is_preemptible", "project"):
        op.drop_column("jobs", column)
