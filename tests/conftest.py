"""Fixtures shared by every test: where the public data files are, and fresh databases of both kinds."""

from __future__ import annotations

import os
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from sqlalchemy.engine import make_url

from api.core.db import Database
from api.core.schema import upgrade_url
from api.core.tables import Base
from tests import servers

REPOSITORY = Path(__file__).resolve().parents[1]


def pytest_make_parametrize_id(val: object) -> str | None:
    """gzip writes the second it was made into its header: as part of a test's name it would differ between workers."""
    return "gzip" if isinstance(val, bytes) and b"\x1f\x8b" in val else None


def skip_or_fail(message: str) -> None:
    """For what cannot be tested here: a skip that the summary shows, and a failure in CI, where all must run."""
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line a reason for what did not run, however many tests it was."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped if report.when == "setup")
    for reason, count in reasons.items():
        terminalreporter.write_line(f"NOT RUN: {count} tests, {reason}", yellow=True)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real public data files; they are read in place and never copied into the project."""
    folder = Path(os.environ.get("TRAINYARD_SHARED_DATA", REPOSITORY.parent / "shared" / "data")).resolve()
    if not folder.is_dir():
        skip_or_fail(f"the public data files are not at {folder}; set TRAINYARD_SHARED_DATA")
    return folder


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A PostgreSQL server for the whole session: the URL of its own database."""
    server = servers.postgres()
    try:
        url = server.__enter__()
    except servers.Missing as missing:
        skip_or_fail(str(missing))
    yield url
    server.__exit__(None, None, None)


@pytest.fixture(scope="session")
def postgres_migrated(postgres_server: str) -> Iterator[str]:
    """URL of one migrated database for the whole session; a database a test would cost half a second each."""
    name = f"test_{uuid.uuid4().hex}"
    servers.run_sql(postgres_server, f"CREATE DATABASE {name}")
    url = _on(postgres_server, name)
    upgrade_url(url)
    yield url
    servers.run_sql(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgres_url(postgres_migrated: str) -> str:
    """URL of a migrated PostgreSQL database with no rows, and no connection left over from the test before."""
    emptied = [f'DELETE FROM "{table.name}"' for table in reversed(Base.metadata.sorted_tables)]
    servers.run_sql(postgres_migrated, servers.CLOSE_OTHERS, *emptied)
    return postgres_migrated


@pytest.fixture
def empty_postgres_url(postgres_server: str) -> Iterator[str]:
    """URL of a PostgreSQL database that no migration has touched."""
    name = f"empty_{uuid.uuid4().hex}"
    servers.run_sql(postgres_server, f"CREATE DATABASE {name}")
    yield _on(postgres_server, name)
    servers.run_sql(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


def _on(server: str, database: str) -> str:
    return make_url(server).set(database=database).render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file; each test gets a copy of it."""
    file = tmp_path_factory.mktemp("sqlite") / "template.db"
    upgrade_url(f"sqlite:///{file}")
    return file


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """URL of a fresh migrated SQLite database."""
    file = tmp_path / "trainyard.db"
    shutil.copy(sqlite_template, file)
    return f"sqlite:///{file}"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of a fresh migrated database, once of each kind."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A fresh migrated database, once of each kind."""
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[str]:
    """A Redis server for the whole session."""
    server = servers.redis_server()
    try:
        url = server.__enter__()
    except servers.Missing as missing:
        skip_or_fail(str(missing))
    yield url
    server.__exit__(None, None, None)


@pytest.fixture
def redis_url(redis_server: str) -> str:
    """URL of an empty Redis database."""
    client = redis.Redis.from_url(redis_server)
    client.flushdb()
    client.close()
    return redis_server
