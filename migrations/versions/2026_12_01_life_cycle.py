"""The life cycle: time limits, dependencies, back-off, faults by whose they are, exclusions, nodes held empty."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "life_cycle"
down_revision = "openai_and_webhooks"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.add_column("jobs", sa.Column("time_limit_s", BIG, nullable=True))
    op.add_column("jobs", sa.Column("not_before", INSTANT, nullable=True))
    op.add_column("jobs", sa.Column("excluded", JSON, nullable=False, server_default=sa.text("'[]'")))
    op.add_column("jobs", sa.Column("faults", JSON, nullable=False, server_default=sa.text("'{}'")))
    op.add_column("nodes", sa.Column("hold", sa.String(length=20), nullable=True))
    op.create_table(
        "job_dependencies",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("needs_id", sa.String(length=40), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_job_dependencies_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["needs_id"], ["jobs.id"], name=op.f("fk_job_dependencies_needs_id_jobs")),
        sa.PrimaryKeyConstraint("job_id", "needs_id", name=op.f("pk_job_dependencies")),
    )
    op.create_index(op.f("ix_job_dependencies_needs_id"), "job_dependencies", ["needs_id"])


def downgrade() -> None:
    op.drop_table("job_dependencies")
    op.drop_column("nodes", "hold")
    for column in ("faults", "excluded", "not_before", "time_limit_s"):
        op.drop_column("jobs", column)
