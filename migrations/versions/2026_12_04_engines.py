"""Engines that answer prompts, the replies they write, and the devices they hold."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "engines"
down_revision = "api_keys"
branch_labels = None
depends_on = None

EXACT_JSON = sa.JSON(none_as_null=True)
INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.add_column("devices", sa.Column("engine_id", sa.String(length=40), nullable=True))
    op.create_table(
        "engines",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("model_name", sa.String(length=300), nullable=False),
        sa.Column("target", sa.String(length=120), nullable=False),
        sa.Column("live_target", sa.String(length=120), nullable=True),
        sa.Column("device", sa.String(length=10), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("node_name", sa.String(length=200), nullable=True),
        sa.Column("device_index", sa.Integer(), nullable=True),
        sa.Column("owner", sa.String(length=200), nullable=True),
        sa.Column("owned_until", INSTANT, nullable=True),
        sa.Column("process", EXACT_JSON, nullable=True),
        sa.Column("info", EXACT_JSON, nullable=False),
        sa.Column("cause", EXACT_JSON, nullable=True),
        sa.Column("created_by", sa.String(length=40), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("used_at", INSTANT, nullable=False),
        sa.Column("ended_at", INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_engines")),
        sa.UniqueConstraint("live_target", name=op.f("uq_engines_live_target")),
    )
    op.create_index("ix_engines_state_created_at", "engines", ["state", "created_at"])
    op.create_table(
        "generations",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("engine_id", sa.String(length=40), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("prompt", EXACT_JSON, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("outcome", EXACT_JSON, nullable=False),
        sa.Column("wanted_until", INSTANT, nullable=False),
        sa.Column("created_by", sa.String(length=40), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("ended_at", INSTANT, nullable=True),
        sa.ForeignKeyConstraint(
            ["engine_id"], ["engines.id"], name=op.f("fk_generations_engine_id_engines"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_generations")),
    )
    op.create_index("ix_generations_engine_id_state", "generations", ["engine_id", "state"])


def downgrade() -> None:
    op.drop_table("generations")
    op.drop_table("engines")
    with op.batch_alter_table("devices") as devices:
        devices.drop_column("engine_id")
