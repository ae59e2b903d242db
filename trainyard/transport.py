"""What both clients share beneath the routes: how a call becomes a request, what its answer says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import httpx

from trainyard.calls import Call
from trainyard.errors import ApiError, ConnectionFailed
from trainyard.location import Location
from trainyard.patience import AWAY

CONNECT_RETRIES = 3


def options(found: Location) -> dict[str, Any]:
    """Of an httpx client for that service."""
    return {
        "base_url": f"{found.url}/v1",
        "headers": {"Authorization": f"Bearer {found.api_key}"},
        "timeout": httpx.Timeout(30.0, connect=5.0),
    }


@contextmanager
def request(call: Call[Any], url: str) -> Iterator[dict[str, Any]]:
    """The arguments of httpx's `request`; that nothing answers becomes ConnectionFailed."""
    file: BinaryIO | None = call.file.open("rb") if call.file else None
    made: dict[str, Any] = {"params": dict(call.params), "headers": dict(call.headers)}
    if file is not None and call.file is not None:
        made |= {"files": {"file": (call.file.name, file)}, "data": dict(call.form), "timeout": None}
    elif call.json is not None:
        made["json"] = call.json
    try:
        yield made
    except httpx.TransportError as error:
        raise ConnectionFailed(f"nothing answers at {url}: {error}; is the service up (`trainyard up`)?") from error
    finally:
        if file is not None:
            file.close()


def is_refusal(response: httpx.Response) -> bool:
    """Whether an answer is an error to raise, and not one that its reader deals with."""
    if not response.is_error or response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
        return False
    is_stream = "text/event-stream" in response.request.headers.get("accept", "")
    return not (is_stream and response.status_code in AWAY)  # a stream waits for the service to come back


def refusal(response: httpx.Response) -> ApiError:
    """The error of an answer that was read."""
    try:
        error = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        error = {"code": "http_error", "message": f"HTTP {response.status_code} from {response.request.url}"}
    return ApiError(
        response.status_code,
        error["code"],
        error["message"],
        param=error.get("param"),
        details=error.get("details") or (),
        request_id=response.headers.get("x-request-id"),
    )
