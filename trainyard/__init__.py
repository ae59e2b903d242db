"""Trainyard's public face: `trainyard.Client` and the `trainyard` command."""

from trainyard.client import Client
from trainyard.errors import ApiError, ConnectionFailed, JobFailed

__all__ = ["ApiError", "Client", "ConnectionFailed", "JobFailed"]
