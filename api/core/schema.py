"""The database's schema: brought up to date by Alembic's migrations, safely from several processes at once."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event, text
from sqlalchemy.engine import make_url

from api.core import (
    dependency_tables,
    engine_tables,
    export_tables,
    openai_tables,
    quota_tables,
    sweep_tables,
    tables,
    webhook_tables,
)
from api.core.db import Database
from api.core.settings import Settings

# Every module that declares tables, so that the metadata is whole wherever the schema is looked at.
TABLES = (
    tables,
    dependency_tables,
    engine_tables,
    export_tables,
    openai_tables,
    quota_tables,
    sweep_tables,
    webhook_tables,
)
METADATA = tables.Base.metadata
MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"
_LOCK_KEY = 7_246_245_001  # any number, as long as every release uses the same


def upgrade(settings: Settings) -> None:
    """Brings the database of the settings up to date; makes it, and its folder, where there is none."""
    upgrade_url(settings.database)


def upgrade_url(url: str) -> None:
    """The same for a database URL."""
    _make_folder(url)
    database = Database(url)
    if database.is_sqlite:
        # A table that is rebuilt is dropped in between, which must not reach the rows that refer to it.
        event.listen(database.engine, "connect", _without_foreign_keys)
    try:
        # One transaction holds the lock from the look at the version to the commit: the second process waits, then
        # finds nothing to do. SQLite's own lock is taken by BEGIN IMMEDIATE.
        with database.engine.begin() as connection:
            if not database.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    finally:
        database.close()


def is_current(database: Database) -> bool:
    """Whether every migration this code knows has been applied, and no other."""
    # Readiness asks this often; on SQLite it must not wait for, or hold, the lock of writers.
    engine = database.engine.execution_options(trainyard_read_only=True)
    with engine.connect() as connection:
        applied = MigrationContext.configure(connection).get_current_heads()
    return set(applied) == _known_heads()


@lru_cache(maxsize=1)
def _known_heads() -> frozenset[str]:
    return frozenset(ScriptDirectory.from_config(_config()).get_heads())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _make_folder(url: str) -> None:
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite" and parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True, mode=0o700)


def _without_foreign_keys(connection: Any, _entry: Any) -> None:
    connection.execute("PRAGMA foreign_keys=OFF")
