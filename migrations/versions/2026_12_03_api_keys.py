"""API keys with permissions of their own, an expiry and their last use."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "api_keys"
down_revision = "exports"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("permissions", JSON, nullable=True))
    op.add_column("api_keys", sa.Column("expires_at", INSTANT, nullable=True))
    op.add_column("api_keys", sa.Column("last_used_at", INSTANT, nullable=True))
    op.add_column("api_keys", sa.Column("created_by", sa.String(length=40), nullable=True))


def downgrade() -> None:
    for column in ("created_by", "last_used_at", "expires_at", "permissions"):
        op.drop_column("api_keys", column)
