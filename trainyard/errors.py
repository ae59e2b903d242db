"""What the client raises. Every message is fit to show to a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ClientError(Exception):
    """Base of everything the client raises."""


class ConnectionFailed(ClientError):
    """The service did not answer."""


class NotConfigured(ClientError):
    """No address or key could be found."""


class MissingPackage(ClientError):
    """Something asked for needs a package that is not installed."""


class DownloadBroken(ClientError):
    """A downloaded file does not have the size or digest the service promised."""


class JobFailed(ClientError):
    """A job that was waited for did not succeed. `job` is its last description."""

    def __init__(self, job: dict[str, Any]) -> None:
        cause = job.get("cause") or {}
        reason = f": {cause.get('code')}: {cause.get('message')}" if cause else ""
        super().__init__(f"job {job['id']} ended as {job['state']}{reason}")
        self.job = job


class ApiError(ClientError):
    """The service answered with an error."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        details: Sequence[dict[str, Any]] = (),
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.details = list(details)
        self.request_id = request_id
