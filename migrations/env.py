"""Alembic's entry: it runs on the connection that api/core/schema.py hands it, else on the database of the settings."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from sqlalchemy import Connection

from api.core.columns import Instant
from api.core.db import Database
from api.core.schema import METADATA
from api.core.settings import get_settings


def render_item(kind: str, item: Any, _autogen: Any) -> str | Literal[False]:
    """Migrations name plain types, so that a shipped one does not change with the code."""
    if kind == "type" and isinstance(item, Instant):
        return "sa.DateTime(timezone=True)"
    return False


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        render_as_batch=connection.dialect.name == "sqlite",
        render_item=render_item,
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def main() -> None:
    connection = context.config.attributes.get("connection")
    if connection is not None:
        run(connection)
        return
    database = Database(get_settings().database)
    with database.engine.begin() as own:
        run(own)
    database.close()


main()
