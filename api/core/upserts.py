"""INSERT ... ON CONFLICT for both databases: SQLAlchemy has it only in each dialect's own insert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import DeclarativeBase, Session


def insert_missing(session: Session, table: type[DeclarativeBase], rows: Sequence[Mapping[str, Any]]) -> int:
    """Inserts the rows whose keys are not taken; returns how many that were. Two at once is fine."""
    if not rows:
        return 0
    target = table.__table__
    assert isinstance(target, Table)
    insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    inserted = session.execute(
        insert(target).values([dict(row) for row in rows]).on_conflict_do_nothing().returning(*target.primary_key)
    )
    return len(inserted.all())
