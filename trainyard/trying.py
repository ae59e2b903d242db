"""A reply of a model as it is written: `generate(client, "job_...", messages)`.

>>> from trainyard import Client
>>> with Client() as client:
...     words = list(generate(client, job_id, [{"role": "user", "content": "Say 7"}], max_tokens=4))
>>> words[-1]["type"]
'done'
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx

from trainyard.client import Client
from trainyard.errors import ApiError, ConnectionFailed
from trainyard.streams import parse

# The service says nothing while a node is waited for or a large model is loaded.
READ_TIMEOUT_S = 900.0


def generate(
    client: Client, model: str, messages: Sequence[Mapping[str, Any]], **options: Any
) -> Iterator[dict[str, Any]]:
    """What the service says, each with its `type`: engine (id, state), piece (text), and last done with the reason
    it ended, tokens and tool calls. `options` as in the API reference; those that are None are left out.

    Raises ApiError where it is refused, also in the middle. Closing the iterator cancels the reply.
    """
    body = {"model": model, "messages": list(messages)} | {
        name: value for name, value in options.items() if value is not None
    }
    request: dict[str, Any] = {
        "json": body,
        "headers": {"Accept": "text/event-stream"},
        "timeout": httpx.Timeout(READ_TIMEOUT_S),
    }
    try:
        with client._http.stream("POST", "/generations", **request) as response:
            if response.is_error:
                response.read()
                raise _refusal(response.status_code, response.json()["error"])
            for event in parse(response.iter_lines()):
                word = json.loads(event.data)
                if event.name == "error":
                    raise _refusal(response.status_code, word)
                yield {"type": event.name, **word}
    except httpx.TransportError as error:
        raise ConnectionFailed(f"the service at {client.url} does not answer: {error}") from error


def _refusal(status: int, error: Mapping[str, Any]) -> ApiError:
    return ApiError(
        status, error["code"], error["message"], param=error.get("param"), details=error.get("details") or ()
    )
