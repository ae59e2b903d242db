"""Every error the core raises, in one tree. It knows nothing of HTTP: `api/errors.py` translates.

TrainyardError
├── NotFound             no such thing, or not yours to see
├── Invalid              what was sent cannot be accepted; `details` lists every fault
├── Conflict             it was acceptable once, the state has moved on
├── Denied               no key, or a key without the permission
├── TooLarge             over a stated limit
├── TooMany              more at once than a stated limit; later it may be
└── Unavailable          a part we need (storage, queue, disk) does not answer; trying again may help
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class TrainyardError(Exception):
    """Base of the tree. `code` is stable, `message` says what was found, what was expected and what to do."""

    code = "internal"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        details: Sequence[dict[str, Any]] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.param = param
        self.details = list(details)


class NotFound(TrainyardError):
    code = "not_found"


class Invalid(TrainyardError):
    code = "invalid"


class Conflict(TrainyardError):
    code = "conflict"


class Denied(TrainyardError):
    code = "denied"


class Unauthenticated(Denied):
    code = "unauthenticated"


class TooLarge(TrainyardError):
    code = "too_large"


class TooMany(TrainyardError):
    code = "too_many"


class Unavailable(TrainyardError):
    code = "unavailable"
