"""Trainyard's public face: `trainyard.Client`, `trainyard.AsyncClient` and the `trainyard` command."""

from trainyard.async_client import AsyncClient
from trainyard.client import Client
from trainyard.errors import ApiError, ClientError, ConnectionFailed, DownloadBroken, JobFailed
from trainyard.job import AsyncJob, Job

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncJob",
    "Client",
    "ClientError",
    "ConnectionFailed",
    "DownloadBroken",
    "Job",
    "JobFailed",
]
