"""Columns of an API key beside its digest. `ApiKey` in `tables.py` takes them in; what they mean is in `keys.py`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from api.core.columns import Json


class KeyColumns:
    """Taken in by `ApiKey`."""

    permissions: Mapped[list[Any] | None] = mapped_column(Json, doc="Instead of the role's; null: what the role may.")
    expires_at: Mapped[datetime | None] = mapped_column(doc="Not known any more from then on; null: never.")
    last_used_at: Mapped[datetime | None] = mapped_column(doc="To the minute: it is written once a minute at most.")
    created_by: Mapped[str | None] = mapped_column(String(40), doc="The key that made it; null: the operator.")
    revoked_at: Mapped[datetime | None]
