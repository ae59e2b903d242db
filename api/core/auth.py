"""Who is asking and what they may do: API keys, roles, browser sessions. Knows nothing of HTTP.

The database holds digests only. A key has 256 random bits, so one SHA-256 is enough; it is found by its digest, so the
time a lookup takes says nothing about any other key.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from sqlalchemy import ColumnElement, delete, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from api.core.db import Database, now
from api.core.errors import Invalid, Unauthenticated
from api.core.ids import new_id
from api.core.settings import Settings
from api.core.tables import ApiKey, BrowserSession

KEY_SHAPE = re.compile(r"^ty-[A-Za-z0-9_-]{20,200}$")
SESSION_LASTS = timedelta(days=7)


class Permission(StrEnum):
    """What a route may ask for."""

    JOBS_READ = "jobs:read"
    JOBS_WRITE = "jobs:write"
    DATASETS_READ = "datasets:read"
    DATASETS_WRITE = "datasets:write"
    MODELS_READ = "models:read"
    MODELS_WRITE = "models:write"
    NODES_READ = "nodes:read"
    WEBHOOKS_READ = "webhooks:read"
    WEBHOOKS_WRITE = "webhooks:write"
    ADMIN = "admin"


ROLES: dict[str, frozenset[Permission]] = {
    "admin": frozenset(Permission),
    "member": frozenset(Permission) - {Permission.ADMIN},
    "viewer": frozenset(permission for permission in Permission if permission.endswith(":read")),
}


@dataclass(frozen=True)
class Actor:
    """Who sent a request: an API key, by itself or through a browser session opened with it."""

    id: str
    name: str
    role: str
    permissions: frozenset[str] | None = None  # instead of the role's

    def may(self, permission: Permission) -> bool:
        own = self.permissions
        return permission in (ROLES.get(self.role, frozenset()) if own is None else own)


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def actor_for_key(session: Session, key: str) -> Actor:
    """The actor behind an API key. Raises Unauthenticated for one that is unknown, revoked or expired."""
    row = session.scalar(select(ApiKey).where(ApiKey.key_sha256 == digest(key), *_is_good()))
    if row is None:
        raise Unauthenticated(
            "the API key is not known here, or it was revoked or has expired; the first one is in DATA_DIR/api-key"
        )
    return _actor(row)


def _is_good() -> tuple[ColumnElement[bool], ...]:
    return ApiKey.revoked_at.is_(None), or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > now())


def _actor(row: ApiKey) -> Actor:
    own = None if row.permissions is None else frozenset(row.permissions)
    return Actor(row.id, row.name, row.role, own)


def open_browser_session(session: Session, key: str) -> str:
    """Log a browser in with an API key; returns the token for its cookie, of which only the digest is kept."""
    actor = actor_for_key(session, key)
    token = secrets.token_urlsafe(32)
    session.execute(delete(BrowserSession).where(BrowserSession.expires_at < now()))
    session.add(BrowserSession(token_sha256=digest(token), api_key_id=actor.id, expires_at=now() + SESSION_LASTS))
    return token


def actor_for_token(session: Session, token: str) -> Actor:
    """The actor behind a browser session. Raises Unauthenticated when it is over or its key is good no more."""
    row = session.scalar(
        select(ApiKey)
        .join(BrowserSession, BrowserSession.api_key_id == ApiKey.id)
        .where(
            BrowserSession.token_sha256 == digest(token),
            BrowserSession.expires_at > now(),
            *_is_good(),
        )
    )
    if row is None:
        raise Unauthenticated("the browser session is over; log in again")
    return _actor(row)


def close_browser_session(session: Session, token: str) -> None:
    session.execute(delete(BrowserSession).where(BrowserSession.token_sha256 == digest(token)))


def add_key(
    session: Session, name: str, role: str = "admin", *, key: str | None = None, permissions: list[str] | None = None
) -> tuple[ApiKey, str]:
    """A new key and its secret, which is shown this once. With `permissions` the role is but a word for them."""
    if permissions is None and role not in ROLES:
        raise Invalid(f"there is no role {role!r}; the roles are {', '.join(sorted(ROLES))}", param="role")
    secret = key or "ty-" + secrets.token_urlsafe(32)
    row = ApiKey(id=new_id("key"), name=name, role=role, key_sha256=digest(secret), permissions=permissions)
    session.add(row)
    session.flush()
    return row, secret


def make_first_key(database: Database, settings: Settings) -> None:
    """See to it that the key in `settings.key_file` (0600) is known to the database; make the file when there is none.

    The file comes first: a crash between file and row leaves a file that the next start takes in.
    """
    key = read_key_file(settings.key_file) or _write_key_file(settings.key_file)
    try:
        with database.session() as session:
            if session.scalar(select(ApiKey.id).where(ApiKey.key_sha256 == digest(key))) is None:
                add_key(session, "first key", key=key)
    except IntegrityError:
        # Another process starting at the same moment took the same key in; that is what was wanted.
        return


def read_key_file(path: Path) -> str | None:
    """The key kept in `path`, or None when there is no such file."""
    try:
        key = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        key = ""
    if KEY_SHAPE.fullmatch(key) is None:
        raise Invalid(f"{path} holds no API key (expected ty- and at least 20 characters); delete it to get a new one")
    return key


def _write_key_file(path: Path) -> str:
    """A fresh key in `path`, whole or not at all; whoever is first wins and everybody uses that one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    key = "ty-" + secrets.token_urlsafe(32)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(key + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)  # unlike a rename it never replaces a file that is there
    except FileExistsError:
        key = read_key_file(path) or key
    finally:
        draft.unlink()
    return key
