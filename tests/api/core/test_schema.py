"""Migrations: from empty on both databases, no drift from the tables, safe when two processes start together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text

from api.core import schema
from api.core.db import Database
from api.core.settings import Settings
from api.core.tables import Base

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'new' / 'trainyard.db'}"
    url: str = request.getfixturevalue("empty_postgres_url")
    return url


def test_upgrade_from_empty_is_current_and_repeatable(empty_url: str, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, database_url=empty_url)
    schema.upgrade(settings)
    schema.upgrade(settings)
    database = Database(empty_url)
    assert schema.is_current(database)
    assert set(inspect(database.engine).get_table_names()) == {*Base.metadata.tables, "alembic_version"}
    database.close()


def test_a_database_without_tables_is_not_current(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'bare.db'}")
    assert not schema.is_current(database)
    database.close()


def test_migrations_make_exactly_the_tables_of_the_code(database: Database) -> None:
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_migrated_sqlite_keeps_foreign_keys_for_the_service(sqlite_url: str) -> None:
    database = Database(sqlite_url)
    with database.engine.connect() as connection:
        assert connection.scalar(text("PRAGMA foreign_keys")) == 1
    database.close()


def test_downgrade_leaves_nothing_behind(empty_url: str) -> None:
    schema.upgrade_url(empty_url)
    database = Database(empty_url)
    with database.engine.begin() as connection:
        config = schema._config()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert inspect(database.engine).get_table_names() == ["alembic_version"]
    database.close()


def test_processes_that_start_together_migrate_once(empty_url: str) -> None:
    code = "import sys; from api.core.schema import upgrade_url; upgrade_url(sys.argv[1])"
    starts = [
        subprocess.Popen([sys.executable, "-c", code, empty_url], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    errors = [process.communicate(timeout=120)[1] for process in starts]
    assert [process.returncode for process in starts] == [0, 0, 0], errors
    database = Database(empty_url)
    assert schema.is_current(database)
    database.close()
