"""Logging in with an API key, and out again. The cookie holds a session token, never the key."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from api.core import auth
from api.core.errors import Unauthenticated
from api.dashboard.access import own_path
from api.dashboard.render import page
from api.deps import SESSION_COOKIE, WriteSession, forget_actor, refuse_foreign_origin

router = APIRouter(include_in_schema=False)


@router.get("/login")
def show_login(request: Request, next: str = "/jobs") -> Response:
    return page("login.html", request, next=own_path(next), fault=None)


@router.post("/login")
def log_in(
    request: Request, session: WriteSession, key: Annotated[str, Form()] = "", next: Annotated[str, Form()] = "/jobs"
) -> Response:
    refuse_foreign_origin(request)
    try:
        token = auth.open_browser_session(session, key.strip())
    except Unauthenticated as error:
        return page("login.html", request, status=401, next=own_path(next), fault=error.message)
    answer = RedirectResponse(own_path(next), status_code=303)
    answer.set_cookie(
        SESSION_COOKIE,
        token,
        max_age=int(auth.SESSION_LASTS.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


@router.post("/logout")
def log_out(request: Request, session: WriteSession) -> Response:
    refuse_foreign_origin(request)
    token = request.cookies.get(SESSION_COOKIE)
    if token:
        auth.close_browser_session(session, token)
        forget_actor(request, token)
    answer = RedirectResponse("/login", status_code=303)
    answer.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
    return answer
