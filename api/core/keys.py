"""API keys as people manage them: made, listed, revoked. What a key opens is in `auth.py`.

There is always an admin key that never expires, so that nobody can lock everybody out over HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import delete, or_, select, update
from sqlalchemy.orm import Session

from api.core.auth import ROLES, Actor, Permission, add_key
from api.core.db import Database, now
from api.core.errors import Conflict, Invalid, NotFound
from api.core.ids import is_id
from api.core.tables import ApiKey, BrowserSession
from trainer_core.problems import nearest

CUSTOM = "custom"  # the role of a key that names its permissions one by one
USE_WRITTEN_EVERY = timedelta(minutes=1)


@dataclass(frozen=True)
class NewKey:
    """What a key is asked for with: a role, or permissions one by one."""

    name: str
    role: str | None
    permissions: tuple[str, ...] | None
    expires_at: datetime | None


def create(session: Session, asked: NewKey, actor: Actor) -> tuple[ApiKey, str]:
    """The key and its secret, which is shown this once. Raises Invalid with the field at fault."""
    role, permissions = _rights(asked)
    row, secret = add_key(session, asked.name, role, permissions=permissions)
    row.expires_at = _instant(asked.expires_at)
    row.created_by = actor.id
    session.flush()
    return row, secret


def listing(session: Session, *, with_revoked: bool = False) -> list[ApiKey]:
    """Oldest first; an expired key is listed until it is revoked."""
    query = select(ApiKey).order_by(ApiKey.created_at, ApiKey.id)
    return list(session.scalars(query if with_revoked else query.where(ApiKey.revoked_at.is_(None))))


def revoke(session: Session, key_id: str) -> ApiKey:
    """The key opens nothing from now on, nor do the browser sessions it opened. Revoked again, it stays as it is.

    Raises Conflict for the last admin key that does not expire.
    """
    # The rows are locked in one order, so that two admins who revoke each other's key cannot both succeed.
    rows = list(session.scalars(select(ApiKey).order_by(ApiKey.id).with_for_update()))
    row = next((row for row in rows if row.id == key_id), None) if is_id(key_id) else None
    if row is None:
        raise NotFound("there is no such key")
    lasting = {row.id for row in rows if row.revoked_at is None and row.expires_at is None and is_admin(row)}
    if lasting == {row.id}:
        raise Conflict(
            f"{row.name!r} is the last admin key that does not expire; make another one first, "
            "or nobody could manage this service any more",
            code="last_admin_key",
        )
    row.revoked_at = row.revoked_at or now()
    session.execute(delete(BrowserSession).where(BrowserSession.api_key_id == row.id))
    return row


def permissions_of(row: ApiKey) -> list[str]:
    """What the key may do, by name."""
    return sorted(row.permissions if row.permissions is not None else ROLES.get(row.role, ()))


def is_admin(row: ApiKey) -> bool:
    return Permission.ADMIN in permissions_of(row)


def note_use(database: Database, key_id: str) -> None:
    """Write down that a key was used, unless that was done within the last minute."""
    at = now()
    is_old = or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at < at - USE_WRITTEN_EVERY)
    with database.session() as session:
        session.execute(update(ApiKey).where(ApiKey.id == key_id, is_old).values(last_used_at=at))


def _rights(asked: NewKey) -> tuple[str, list[str] | None]:
    if (asked.role is None) == (asked.permissions is None):
        found = "neither" if asked.role is None else "both"
        roles = ", ".join(sorted(ROLES))
        raise Invalid(f"expected `role` (one of {roles}) or `permissions`, found {found}", param="role")
    if asked.permissions is None:
        assert asked.role is not None
        _check(asked.role, ROLES, "role")
        return asked.role, None
    for at, permission in enumerate(asked.permissions):
        _check(permission, [str(known) for known in Permission], f"permissions[{at}]")
    return CUSTOM, sorted(set(asked.permissions))


def _check(name: str, known: Iterable[str], param: str) -> None:
    if name not in known:
        near = nearest(name, known)
        hint = f"; did you mean {near!r}?" if near else ""
        raise Invalid(f"expected one of {', '.join(sorted(known))}, found {name[:60]!r}{hint}", param=param)


def _instant(expires_at: datetime | None) -> datetime | None:
    """Without a zone it is UTC, so that a plain date works."""
    if expires_at is None:
        return None
    instant = expires_at if expires_at.tzinfo else expires_at.replace(tzinfo=UTC)
    if instant <= now():
        raise Invalid(f"expected an instant to come, found {instant.isoformat()}", param="expires_at")
    return instant.astimezone(UTC)
