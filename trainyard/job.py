"""A job as the client hands it out: the service's description, with what can be asked of it as methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.calls import Async, OfJob, Sync
from trainyard.results import Json
from trainyard.routes.jobs import TERMINAL, JobRoutes
from trainyard.routes.results import ResultRoutes

if TYPE_CHECKING:
    from trainyard.async_client import AsyncClient
    from trainyard.client import Client


class _Description(dict[str, Any]):
    """The dictionary that the service answered; what people look at most are attributes too."""

    @property
    def id(self) -> str:
        return str(self["id"])

    @property
    def name(self) -> str:
        return str(self["name"])

    @property
    def state(self) -> str:
        """As of the call that answered it; `refresh()` asks again."""
        return str(self["state"])

    @property
    def is_over(self) -> bool:
        return self.state in TERMINAL

    @property
    def step(self) -> int:
        return int(self["step"])

    @property
    def planned_steps(self) -> int | None:
        planned: int | None = self["planned_steps"]
        return planned

    @property
    def best_step(self) -> int | None:
        best: int | None = self["best_step"]
        return best

    @property
    def cause(self) -> Json | None:
        """Why it failed: code, message, hint."""
        cause: Json | None = self["cause"]
        return cause


class _Asked:
    """What can be asked of a job: the client's routes with its id filled in."""

    refresh = OfJob(JobRoutes.job)
    wait = OfJob(JobRoutes.wait)
    cancel = OfJob(JobRoutes.cancel)
    pause = OfJob(JobRoutes.pause)
    resume = OfJob(JobRoutes.resume)
    retry = OfJob(JobRoutes.retry)
    clone = OfJob(JobRoutes.clone)
    change = OfJob(JobRoutes.change)
    events = OfJob(JobRoutes.events)
    metrics = OfJob(JobRoutes.metrics)
    logs = OfJob(JobRoutes.logs)
    checkpoints = OfJob(ResultRoutes.checkpoints)
    artifacts = OfJob(ResultRoutes.artifacts)
    download = OfJob(ResultRoutes.download)
    export = OfJob(ResultRoutes.export)
    exports = OfJob(ResultRoutes.exports)


class Job(_Asked, Sync, _Description):
    """A job of a `Client`."""

    def __init__(self, client: Client, description: Json) -> None:
        super().__init__(description)
        self.client = client


class AsyncJob(_Asked, Async, _Description):
    """A job of an `AsyncClient`."""

    def __init__(self, client: AsyncClient, description: Json) -> None:
        super().__init__(description)
        self.client = client
