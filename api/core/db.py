"""Engine and sessions for SQLite and PostgreSQL, synchronous.

Nobody commits but the edge: `Database.session()` commits when its block ends well and rolls back when it does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry

BUSY_TIMEOUT_MS = 10_000


class Database:
    """One engine and its sessions. Make one a process, after any fork."""

    def __init__(self, url: str, *, pool_size: int = 10) -> None:
        self.url = url
        self.is_sqlite = url.startswith("sqlite")
        self.engine = _sqlite_engine(url) if self.is_sqlite else _postgres_engine(url, pool_size)
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A transaction: committed when the block ends, rolled back when it raises."""
        with self._sessions.begin() as session:
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A transaction that only reads; on SQLite it never takes the write lock."""
        engine = self.engine.execution_options(trainyard_read_only=True)
        with Session(engine, expire_on_commit=False) as session:
            yield session

    def close(self) -> None:
        self.engine.dispose()


def _postgres_engine(url: str, pool_size: int) -> Engine:
    return create_engine(
        url, pool_size=pool_size, max_overflow=pool_size, pool_pre_ping=True, connect_args={"connect_timeout": 5}
    )


def _sqlite_engine(url: str) -> Engine:
    engine = create_engine(url, connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000})

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _entry: ConnectionPoolEntry) -> None:
        # sqlite3's own transaction control begins late and loses updates in silence; we begin ourselves, below.
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        read_only = connection.get_execution_options().get("trainyard_read_only", False)
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


def now() -> datetime:
    """This instant, UTC, aware."""
    return datetime.now(UTC)
