"""What routes ask for: the parts of the running service, a transaction, the actor behind the request.

    @router.get("/things")
    def read_things(session: ReadSession, actor: Annotated[Actor, allow(Permission.JOBS_READ)]) -> ThingsOut: ...

`WriteSession` commits before the answer is sent, so a commit that fails is a request that fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, Path, Query, Request
from fastapi.params import Depends as DependsMarker
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from api.core import auth, keys
from api.core.auth import Actor, Permission
from api.core.db import Database
from api.core.errors import Denied, Unauthenticated
from api.core.settings import Settings
from api.core.storage import Storage
from api.follow import Follower
from api.query import refuse_unknown_query

SESSION_COOKIE = "trainyard_session"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
ACTOR_KEPT_S = 5.0
MAX_ACTORS_KEPT = 10_000
AFTER_COMMIT = "trainyard_after_commit"


@dataclass(frozen=True)
class Parts:
    """What one running service is made of."""

    settings: Settings
    database: Database
    storage: Storage
    follower: Follower
    actors: dict[str, tuple[float, Actor]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    used: dict[str, float] = field(default_factory=dict)


def parts_of(request: Request) -> Parts:
    parts = request.app.state.parts
    assert isinstance(parts, Parts)
    return parts


PartsDep = Annotated[Parts, Depends(parts_of)]


def settings_of(parts: PartsDep) -> Settings:
    return parts.settings


def storage_of(parts: PartsDep) -> Storage:
    return parts.storage


SettingsDep = Annotated[Settings, Depends(settings_of)]
StorageDep = Annotated[Storage, Depends(storage_of)]


def _writing(request: Request) -> Iterator[Session]:
    with parts_of(request).database.session() as session:
        yield session
    for hook in session.info.pop(AFTER_COMMIT, []):
        hook()


def _reading(request: Request) -> Iterator[Session]:
    with parts_of(request).database.reading() as session:
        yield session


# scope="function" ends the dependency before the answer is sent; the default would commit after a 201 had left.
WriteSession = Annotated[Session, Depends(_writing, scope="function")]
ReadSession = Annotated[Session, Depends(_reading, scope="function")]


def after_commit(session: Session, hook: Callable[[], Any]) -> None:
    """Have `hook` called once this request's transaction is committed, and only then: the place for a nudge."""
    session.info.setdefault(AFTER_COMMIT, []).append(hook)


class Allow:
    """The dependency that lets an actor with `permission` in, and nobody else."""

    def __init__(self, permission: Permission) -> None:
        self.permission = permission

    async def __call__(self, request: Request) -> Actor:
        actor = await _actor(request)
        if not actor.may(self.permission):
            whose = f"the role {actor.role!r}" if actor.permissions is None else f"the key {actor.name!r}"
            raise Denied(f"this needs the permission {self.permission}, which {whose} lacks")
        await refuse_unknown_query(request)
        return actor


def allow(permission: Permission) -> Any:
    """`Depends` for a route: who asks, if they may. Every route but health names its permission this way."""
    marker: DependsMarker = Depends(Allow(permission))
    return marker


async def _actor(request: Request) -> Actor:
    key = _bearer(request)
    if key is not None:
        return await _kept(parts_of(request), "key:" + auth.digest(key), key, auth.actor_for_key)
    token = request.cookies.get(SESSION_COOKIE)
    if token is None:
        raise Unauthenticated("no API key was sent; send `Authorization: Bearer KEY`")
    if request.method not in SAFE_METHODS:
        refuse_foreign_origin(request)
    return await _kept(parts_of(request), "token:" + auth.digest(token), token, auth.actor_for_token)


def _bearer(request: Request) -> str | None:
    header = request.headers.get("authorization")
    if header is None:
        return None
    scheme, _, key = header.partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Unauthenticated("the Authorization header is not of the form `Bearer KEY`")
    return key.strip()


async def _kept(parts: Parts, kept_as: str, secret: str, look_up: Callable[[Session, str], Actor]) -> Actor:
    """Look an actor up, or take the one found in the last seconds: a poll should not cost two queries.

    A key that another process revoked is thus refused within ACTOR_KEPT_S. Only good secrets are kept.
    """
    until, actor = parts.actors.get(kept_as, (0.0, None))
    if actor is not None and time.monotonic() < until:
        return actor

    def find() -> Actor:
        with parts.database.reading() as session:
            actor = look_up(session, secret)
        _note_use(parts, actor)
        return actor

    found = await run_in_threadpool(find)
    if len(parts.actors) >= MAX_ACTORS_KEPT:
        parts.actors.clear()
    parts.actors[kept_as] = (time.monotonic() + ACTOR_KEPT_S, found)
    return found


def _note_use(parts: Parts, actor: Actor) -> None:
    """That a key was used is worth knowing, but no reason to make a request wait or fail."""
    last = parts.used.get(actor.id)
    if last is not None and time.monotonic() - last < keys.USE_WRITTEN_EVERY.total_seconds():
        return
    parts.used[actor.id] = time.monotonic()
    with suppress(SQLAlchemyError):
        keys.note_use(parts.database, actor.id)


def forget_key(request: Request, key_id: str) -> None:
    """Drop what is kept of a key and of its browser sessions: that it was revoked counts at once."""
    kept = parts_of(request).actors
    for kept_as in [name for name, (_, actor) in list(kept.items()) if actor.id == key_id]:
        kept.pop(kept_as, None)


def forget_actor(request: Request, token: str) -> None:
    """Drop what is kept of a browser session: its log-out counts at once."""
    parts_of(request).actors.pop("token:" + auth.digest(token), None)


def refuse_foreign_origin(request: Request) -> None:
    """A browser sends its cookie along whoever wrote the page; only our own pages may change anything with it."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None and site not in {"same-origin", "none"}:
        raise Denied(f"a browser sent this from another site (Sec-Fetch-Site: {site}); use an API key instead")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise Denied(f"a browser sent this from {origin}, which is not this service; use an API key instead")
    if site is None and origin is None:
        raise Denied("a session cookie without Origin or Sec-Fetch-Site cannot change anything; use an API key instead")


JobId = Annotated[str, Path(description="The job's id.", examples=["job_01k3f9c8w4m1q7x2s5v8zt"])]
Limit = Annotated[int, Query(ge=1, le=1000, description="How many items to answer at most.")]
After = Annotated[int, Query(ge=0, le=2**62, description="`n` of the last item seen; answers what came after it.")]
