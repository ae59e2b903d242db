"""A typed client for Trainyard's HTTP API. It needs httpx and nothing of the server.

>>> from trainyard import Client
>>> with Client() as found:
...     job = found.submit({"model": "tiny", "dataset": {"train": dataset_id}})
>>> job.state
'validating'
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import httpx

from trainyard import downloads, location, streams, transport
from trainyard.calls import Call, Fetch, Flow, Following, Pages, Sleep, Step, Sync
from trainyard.errors import ClientError
from trainyard.feeds import Feed
from trainyard.job import Job
from trainyard.results import Json
from trainyard.routes.access import AccessRoutes
from trainyard.routes.jobs import TERMINAL, JobRoutes
from trainyard.routes.results import ResultRoutes
from trainyard.routes.shelves import ShelfRoutes
from trainyard.routes.sweeps import SweepRoutes

__all__ = ["TERMINAL", "Client", "Json"]
T = TypeVar("T")


class Client(ShelfRoutes, JobRoutes, ResultRoutes, SweepRoutes, AccessRoutes, Sync):
    """The service behind `url`. Without arguments it finds the one on this machine.

    Every method raises ApiError for an error the service answered, ConnectionFailed when nothing answered.
    Descriptions come back as the dictionaries the API reference shows; a job has methods too.
    """

    def __init__(self, url: str | None = None, api_key: str | None = None, *, data_dir: Path | None = None) -> None:
        found = location.find(url, api_key, data_dir)
        self.url = found.url
        self._http = httpx.Client(
            **transport.options(found),
            transport=httpx.HTTPTransport(retries=transport.CONNECT_RETRIES),
            event_hooks={"response": [_raise_refusal]},
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # How a described call is made

    def _call(self, call: Call[T]) -> T:
        with transport.request(call, self.url) as made:
            response = self._http.request(call.method, call.path, **made)
        answer: T = response.json() if response.content else {}
        return answer

    def _job(self, call: Call[Any]) -> Job:
        return Job(self, self._call(call))

    def _pages(self, pages: Pages[T]) -> Iterator[T]:
        query = dict(pages.params)
        while True:
            page: Json = self._call(Call("GET", pages.path, query))
            yield from page["data"]
            if not page["has_more"]:
                return
            query["after"] = page["next"]

    def _jobs(self, pages: Pages[Any]) -> Iterator[Job]:
        return (Job(self, description) for description in self._pages(pages))

    def _list(self, pages: Pages[T]) -> list[T]:
        return list(self._pages(pages))

    def _feed(self, what: Following[T]) -> Feed[T]:
        if what.follow:
            return Feed(streams.follow(self._http, what.path, after=what.after))  # type: ignore[arg-type]
        return Feed(self._pages(Pages(what.path, {"after": what.after})))

    def _run(self, flow: Flow[T]) -> T:
        try:
            step = next(flow)
            while True:
                try:
                    answer = self._do(step)
                except (ClientError, httpx.TransportError) as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _run_job(self, flow: Flow[Any]) -> Job:
        return Job(self, self._run(flow))

    def _do(self, step: Step) -> Any:
        match step:
            case Call():
                return self._call(step)
            case Pages():
                return self._list(step)
            case Sleep():
                return time.sleep(step.seconds)
            case Fetch():
                return downloads.fetch(self._http, step)


def _raise_refusal(response: httpx.Response) -> None:
    if transport.is_refusal(response):
        response.read()
        raise transport.refusal(response)
