"""The client for asyncio: the same routes as `Client`, awaited.

async with AsyncClient() as client:
    job = await client.submit({"model": "tiny", "dataset": {"train": dataset_id}})
    async for line in job.logs(follow=True):
        print(line["text"])
    await job.wait()
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import httpx

from trainyard import downloads, location, streams, transport
from trainyard.calls import Async, Call, Fetch, Flow, Following, Pages, Sleep, Step
from trainyard.errors import ClientError
from trainyard.feeds import AsyncFeed
from trainyard.job import AsyncJob
from trainyard.results import Json
from trainyard.routes.access import AccessRoutes
from trainyard.routes.jobs import JobRoutes
from trainyard.routes.results import ResultRoutes
from trainyard.routes.shelves import ShelfRoutes
from trainyard.routes.sweeps import SweepRoutes

T = TypeVar("T")


class AsyncClient(ShelfRoutes, JobRoutes, ResultRoutes, SweepRoutes, AccessRoutes, Async):
    """The service behind `url`, for asyncio. What `Client` returns is awaited; what it iterates, `async for` does."""

    def __init__(self, url: str | None = None, api_key: str | None = None, *, data_dir: Path | None = None) -> None:
        found = location.find(url, api_key, data_dir)
        self.url = found.url
        self._http = httpx.AsyncClient(
            **transport.options(found),
            transport=httpx.AsyncHTTPTransport(retries=transport.CONNECT_RETRIES),
            event_hooks={"response": [_raise_refusal]},
        )

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    # How a described call is made

    async def _call(self, call: Call[T]) -> T:
        with transport.request(call, self.url) as made:
            response = await self._http.request(call.method, call.path, **made)
        answer: T = response.json() if response.content else {}
        return answer

    async def _job(self, call: Call[Any]) -> AsyncJob:
        return AsyncJob(self, await self._call(call))

    async def _pages(self, pages: Pages[T]) -> AsyncIterator[T]:
        query = dict(pages.params)
        while True:
            page: Json = await self._call(Call("GET", pages.path, query))
            for item in page["data"]:
                yield item
            if not page["has_more"]:
                return
            query["after"] = page["next"]

    async def _jobs(self, pages: Pages[Any]) -> AsyncIterator[AsyncJob]:
        async for description in self._pages(pages):
            yield AsyncJob(self, description)

    async def _list(self, pages: Pages[T]) -> list[T]:
        return [item async for item in self._pages(pages)]

    def _feed(self, what: Following[T]) -> AsyncFeed[T]:
        if what.follow:
            return AsyncFeed(streams.follow_async(self._http, what.path, after=what.after))  # type: ignore[arg-type]
        return AsyncFeed(self._pages(Pages(what.path, {"after": what.after})))

    async def _run(self, flow: Flow[T]) -> T:
        # A flow also reads and digests files: its steps are taken in a thread, so that nothing else waits for a disk.
        step = await asyncio.to_thread(_next, flow, None)
        while not isinstance(step, _End):
            try:
                answer = await self._do(step)
            except (ClientError, httpx.TransportError) as error:
                step = await asyncio.to_thread(_throw, flow, error)
            else:
                step = await asyncio.to_thread(_next, flow, answer)
        result: T = step.value
        return result

    async def _run_job(self, flow: Flow[Any]) -> AsyncJob:
        return AsyncJob(self, await self._run(flow))

    async def _do(self, step: Step) -> Any:
        match step:
            case Call():
                return await self._call(step)
            case Pages():
                return await self._list(step)
            case Sleep():
                return await asyncio.sleep(step.seconds)
            case Fetch():
                return await downloads.fetch_async(self._http, step)


class _End:
    """A flow's result. StopIteration cannot pass through a thread's future."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _next(flow: Flow[Any], answer: Any) -> Step | _End:
    try:
        return flow.send(answer)
    except StopIteration as end:
        return _End(end.value)


def _throw(flow: Flow[Any], error: Exception) -> Step | _End:
    try:
        return flow.throw(error)
    except StopIteration as end:
        return _End(end.value)


async def _raise_refusal(response: httpx.Response) -> None:
    if transport.is_refusal(response):
        await response.aread()
        raise transport.refusal(response)
