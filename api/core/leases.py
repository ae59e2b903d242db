"""Leases: one holder at a time, until an instant. Who does not renew loses it."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import or_, update
from sqlalchemy.orm import Session

from api.core.db import now
from api.core.tables import Lease
from api.core.upserts import insert_missing


def take(session: Session, name: str, holder: str, for_s: float, *, at: datetime | None = None) -> bool:
    """Takes or renews the lease for `for_s` seconds; False while another holds it."""
    instant = at or now()
    until = instant + timedelta(seconds=for_s)
    renewed = session.scalars(
        update(Lease)
        .where(Lease.name == name, or_(Lease.holder == holder, Lease.until <= instant))
        .values(holder=holder, until=until)
        .returning(Lease.name)
        .execution_options(synchronize_session=False)
    ).all()
    return bool(renewed) or insert_missing(session, Lease, [{"name": name, "holder": holder, "until": until}]) == 1
