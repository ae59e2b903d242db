"""The outermost layer of every request: its id, the headers of every answer, the limit and strictness of bodies,
and the one place where an unexpected exception ends. Plain ASGI, so that streams pass through untouched.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import strictjson
from api.core.errors import TooLarge, TrainyardError
from api.errors import answer, answer_for

log = logging.getLogger(__name__)

REQUEST_ID = re.compile(r"^[A-Za-z0-9._-]{1,64}$")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
PAGE_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
# Uploads are read as a stream and limited where they are read.
STREAMED = re.compile(r"POST (/v1/datasets|/openai/v1/files|/openai/v1/uploads/[^/]+/parts)/*")


class Edge:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, *, max_body_bytes: int) -> None:
        self.app = app
        self.max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = headers.get("x-request-id", "")
        if REQUEST_ID.fullmatch(request_id) is None:
            request_id = f"req_{secrets.token_hex(12)}"
        started = False

        async def dressed(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                _dress(message, request_id)
            await send(message)

        try:
            if STREAMED.fullmatch(f"{scope['method']} {scope['path']}") is None:
                receive = await self._body(headers, receive)
            await self.app(scope, receive, dressed)
        except TrainyardError as error:
            await answer_for(error)(scope, receive, dressed)
        except Exception:  # the request ends here: log it with its id, tell nothing of the inside
            log.exception("request %s: %s %s failed", request_id, scope["method"], scope["path"])
            if started:
                raise  # too late for an answer; the server cuts the connection, which the client notices
            response = answer(500, "internal", f"something went wrong here; it is logged as request {request_id}")
            await response(scope, receive, dressed)

    async def _body(self, headers: Headers, receive: Receive) -> Receive:
        """Read a body whole, hold it to the limit and to strict JSON, and hand it on. Nothing is read without one."""
        declared = headers.get("content-length")
        if declared is None and "transfer-encoding" not in headers:
            return receive
        if declared is not None and int(declared) > self.max_body_bytes:
            raise self._too_large()
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return _once(message, receive)
            chunk = message.get("body", b"")
            chunks.append(chunk)
            size += len(chunk)
            if size > self.max_body_bytes:
                raise self._too_large()
            if not message.get("more_body", False):
                break
        body = b"".join(chunks)
        if body and _is_json(headers.get("content-type", "")):
            strictjson.parse(body)
        return _once({"type": "http.request", "body": body, "more_body": False}, receive)

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the body is larger than the {self.max_body_bytes} bytes allowed here (max_body_bytes)")


def _once(message: Message, rest: Callable[[], Awaitable[Message]]) -> Receive:
    waiting = [message]

    async def receive() -> Message:
        return waiting.pop() if waiting else await rest()

    return receive


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _dress(message: Message, request_id: str) -> None:
    headers = MutableHeaders(scope=message)
    headers["X-Request-Id"] = request_id
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
    if headers.get("content-type", "").startswith("text/html"):
        headers.setdefault("Content-Security-Policy", PAGE_POLICY)
        headers.setdefault("Cache-Control", "no-store")
    elif headers.get("content-type", "").startswith("application/json"):
        headers.setdefault("Cache-Control", "no-store")
