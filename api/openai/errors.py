"""Every error below /openai/v1 in OpenAI's shape: {"error": {"message", "type", "param", "code"}}, all four keys.

Errors are made where they are made for the whole service; this outermost layer rewrites what comes out, so that none is
missed: a route's refusal, validation, an unknown path, a body over the limit, an unexpected fault.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ROOT = "/openai/v1"
# The official client retries a 409, which for a job that is over can only fail again; 422 is not in the contract.
STATUS = {409: 400, 422: 400}
TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
# Where a fault of the job's body lies in what was sent here.
PARAMS = {
    "dataset.train": "training_file",
    "dataset.eval": "validation_file",
    "labels": "metadata",
    "training.seed": "seed",
}
MAX_SHOWN = 20


class OpenaiErrors:
    """Wraps the whole application; what is not below /openai/v1 passes through untouched."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not (scope["path"] + "/").startswith(ROOT + "/"):
            await self.app(scope, receive, send)
            return
        await self.app(scope, receive, _Rewriting(send))


class _Rewriting:
    """Holds an error's answer back until its body is whole, then sends it in the other shape."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_error(message):
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._finish(self._start)

    async def _finish(self, start: Message) -> None:
        error = json.loads(self._body)["error"]
        body = json.dumps({"error": rewritten(error, start["status"])}).encode()
        start["status"] = STATUS.get(start["status"], start["status"])
        MutableHeaders(scope=start)["Content-Length"] = str(len(body))
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})


def _is_error(start: Message) -> bool:
    is_json = Headers(raw=start["headers"]).get("content-type", "").startswith("application/json")
    return bool(start["status"] >= 400 and is_json)


def rewritten(error: dict[str, Any], status: int) -> dict[str, Any]:
    """The service's own error, as it was answered with `status`, as OpenAI has it."""
    param = error["param"]
    return {
        "message": _message(error),
        "type": TYPES.get(status, "invalid_request_error" if status < 500 else "server_error"),
        "param": _renamed(param) if param else None,
        "code": _code(error["code"], param, status),
    }


def _code(code: str, param: str | None, status: int) -> str:
    if status == 401:
        return "invalid_api_key"
    if param == "model" and code == "not_found":
        return "model_not_found"
    return code


def _message(error: dict[str, Any]) -> str:
    """The message; where several things are wrong, each of them, since there is no other place to tell."""
    details = error["details"]
    if len(details) < 2:
        return _with_names(error["message"])
    told = [_with_names(_told(detail)) for detail in details[:MAX_SHOWN]]
    if "line" in details[0]:
        return "\n".join([error["message"], *told])
    return "\n".join(told)


def _told(detail: dict[str, Any]) -> str:
    if "line" in detail:
        field = f", {detail['field']}" if detail.get("field") else ""
        return f"line {detail['line']}{field}: {detail['message']}"
    return str(detail.get("message") or json.dumps(detail))


def _renamed(param: str) -> str:
    for ours, theirs in PARAMS.items():
        if param == ours or param.startswith((f"{ours}.", f"{ours}[")):
            return theirs + param[len(ours) :]
    return param


def _with_names(message: str) -> str:
    """A message that begins with the field's path, with the path as it was sent here."""
    head, colon, rest = message.partition(": ")
    return f"{_renamed(head)}{colon}{rest}"
