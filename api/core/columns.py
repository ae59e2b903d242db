"""Column types that hold the same on SQLite and PostgreSQL: strict JSON, large integers, aware instants."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Integer, TypeDecorator
from sqlalchemy.dialects.postgresql import JSONB

Json = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
# Figures and digests must come back exactly as they went in: JSONB makes numerics of floats and sorts keys.
ExactJson = JSON(none_as_null=True)
BigInt = BigInteger().with_variant(Integer(), "sqlite")


class Instant(TypeDecorator[datetime]):
    """An aware UTC datetime; SQLite keeps no zone, so it is taken off on the way in and put back on the way out."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"expected an aware datetime, found {value!r}")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None or value.tzinfo is not None:
            return value
        return value.replace(tzinfo=UTC)
