"""API keys: who may do what. Only an admin manages them; a secret is answered once, when its key is made."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from api.core import keys
from api.core.auth import Actor, Permission
from api.core.db import now
from api.core.specs import Name
from api.core.tables import ApiKey
from api.deps import ReadSession, WriteSession, after_commit, allow, forget_key
from api.schemas import Page, refusals

router = APIRouter(prefix="/v1/keys", tags=["keys"])

Admin = Annotated[Actor, allow(Permission.ADMIN)]
Permissions = Annotated[list[Annotated[str, Field(max_length=60)]], Field(min_length=1, max_length=40)]
EXAMPLES = {
    "person": {"summary": "A colleague", "value": {"name": "ann", "role": "member"}},
    "machine": {
        "summary": "A program that watches jobs, for this year",
        "value": {"name": "status board", "permissions": ["jobs:read"], "expires_at": "2030-12-31"},
    },
}


class KeyIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Name
    role: Annotated[str, Field(max_length=40)] | None = Field(
        default=None, description="admin: everything; member: all but managing the service; viewer: reads."
    )
    permissions: Permissions | None = Field(default=None, description="Instead of a role, such as `jobs:read`.")
    expires_at: datetime | None = Field(default=None, description="Without a zone: UTC. null: never.")


class KeyOut(BaseModel):
    id: str
    name: str
    role: str = Field(description="admin, member, viewer; custom: permissions given one by one.")
    permissions: list[str]
    state: str = Field(description="active, expired or revoked")
    created_at: datetime
    created_by: str | None = Field(description="Id of the key that made it; null: made on the service's machine.")
    expires_at: datetime | None
    last_used_at: datetime | None = Field(description="To the minute; null: never used.")
    revoked_at: datetime | None


class KeyWithSecret(KeyOut):
    secret: str = Field(description="The key itself. Shown this once; only its digest is kept.")


def state_of(row: ApiKey) -> str:
    """active, expired or revoked."""
    if row.revoked_at is not None:
        return "revoked"
    return "expired" if row.expires_at is not None and row.expires_at <= now() else "active"


def _out(row: ApiKey) -> dict[str, Any]:
    same = ("id", "name", "role", "created_at", "created_by", "expires_at", "last_used_at", "revoked_at")
    shown = {name: getattr(row, name) for name in same}
    return shown | {"permissions": keys.permissions_of(row), "state": state_of(row)}


@router.get("", summary="List API keys", responses=refusals())
def list_keys(
    session: ReadSession,
    _actor: Admin,
    revoked: Annotated[bool, Query(description="List revoked keys too.")] = False,
) -> Page[KeyOut]:
    """Oldest first; one page holds them all. Nothing of a secret is in it."""
    data = [KeyOut(**_out(row)) for row in keys.listing(session, with_revoked=revoked)]
    return Page(data=data, has_more=False, next=None)


@router.post("", status_code=201, summary="Make an API key", responses=refusals(400, 413))
def create_key(
    body: Annotated[KeyIn, Body(openapi_examples=EXAMPLES)], session: WriteSession, actor: Admin, response: Response
) -> KeyWithSecret:
    """With a role, or with permissions one by one. The answer holds the secret, which cannot be seen again."""
    permissions = None if body.permissions is None else tuple(body.permissions)
    asked = keys.NewKey(body.name, body.role, permissions, body.expires_at)
    row, secret = keys.create(session, asked, actor)
    response.headers["Location"] = f"/v1/keys/{row.id}"
    return KeyWithSecret(**_out(row), secret=secret)


@router.delete("/{key_id}", status_code=204, summary="Revoke an API key", responses=refusals(404, 409))
def revoke_key(
    key_id: Annotated[str, Path(description="The key's id.")], request: Request, session: WriteSession, _actor: Admin
) -> None:
    """It opens nothing from now on, and its browser sessions are over. 409 for the last lasting admin key."""
    row = keys.revoke(session, key_id)
    after_commit(session, lambda: forget_key(request, row.id))
