"""Reads that outlast a restart of the service: what is away is asked again for a while before that is an error."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from trainyard.calls import Call, Flow, Sleep
from trainyard.errors import ApiError, ConnectionFailed

PATIENCE_S = 120.0  # how long a service may be away (a restart, an upgrade) before following gives up
LOOK_AGAIN_AFTER_S = 0.5
AWAY = (502, 503, 504)  # it, or a proxy before it, is coming up

T = TypeVar("T")


def patiently(call: Callable[[], T], within_s: float = PATIENCE_S) -> T:
    """What `call` returns. For reads alone: it may be made many times."""
    give_up_at = time.monotonic() + within_s
    while True:
        try:
            return call()
        except (ConnectionFailed, ApiError) as error:
            if not _is_away(error) or time.monotonic() > give_up_at:
                raise
        time.sleep(LOOK_AGAIN_AFTER_S)


def patient(call: Call[T], within_s: float = PATIENCE_S) -> Flow[T]:
    """The same within a flow, which does not know whether it is awaited."""
    give_up_at = time.monotonic() + within_s
    while True:
        try:
            answer: T = yield call
        except (ConnectionFailed, ApiError) as error:
            if not _is_away(error) or time.monotonic() > give_up_at:
                raise
        else:
            return answer
        yield Sleep(LOOK_AGAIN_AFTER_S)


def _is_away(error: ConnectionFailed | ApiError) -> bool:
    return isinstance(error, ConnectionFailed) or error.status in AWAY
