"""Who may see a page: the same permissions as the API, but a browser without a session is sent to log in."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

from fastapi import Depends, HTTPException, Request
from fastapi.params import Depends as DependsMarker

from api.core.auth import Actor, Permission
from api.core.errors import Unauthenticated
from api.deps import Allow


class AllowPage(Allow):
    async def __call__(self, request: Request) -> Actor:
        try:
            return await super().__call__(request)
        except Unauthenticated:
            here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            raise HTTPException(303, headers={"Location": f"/login?next={quote(here, safe='')}"}) from None


def allow_page(permission: Permission) -> Any:
    """`Depends` for a page: who looks, if they may."""
    marker: DependsMarker = Depends(AllowPage(permission))
    return marker


def own_path(target: str) -> str:
    """A path of this service to go on to after the login; anything that could leave it becomes the jobs page."""
    parts = urlsplit(target)
    is_ours = target.startswith("/") and not target.startswith(("//", "/\\")) and not parts.scheme and not parts.netloc
    return target if is_ours and "\\" not in target and target.isprintable() else "/jobs"
