"""Leases: one holder at a time, until an instant. Who does not renew loses it."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import case, or_, update
from sqlalchemy.orm import Session

from api.core.db import now
from api.core.tables import Lease
from api.core.upserts import insert_missing


def take(session: Session, name: str, holder: str, for_s: float, *, at: datetime | None = None) -> datetime | None:
    """Takes or renews the lease for `for_s` seconds; null while another holds it.

    The answer says since when the lease has been held without a gap, by whomever: what was silent before that was
    perhaps not silent, but nobody could hear it. The moments between two holders, as long as a lease at most, are none.
    """
    instant = at or now()
    until = instant + timedelta(seconds=for_s)
    gap_before = instant - timedelta(seconds=for_s)
    renewed = session.scalars(
        update(Lease)
        .where(Lease.name == name, or_(Lease.holder == holder, Lease.until <= instant))
        .values(holder=holder, until=until, since=case((Lease.until < gap_before, instant), else_=Lease.since))
        .returning(Lease.since)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    if renewed is not None:
        return renewed
    fresh = {"name": name, "holder": holder, "until": until, "since": instant}
    return instant if insert_missing(session, Lease, [fresh]) else None
