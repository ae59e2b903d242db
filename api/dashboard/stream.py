"""One stream a job page: events, metrics and logs together, since a browser keeps only six connections to a host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import anyio
from anyio.abc import ObjectSendStream
from fastapi import APIRouter
from fastapi.sse import EventSourceResponse

from api.core import jobs
from api.core.auth import Actor, Permission
from api.dashboard.access import allow_page
from api.deps import After, JobId, PartsDep, ReadSession
from api.follow import Follower

router = APIRouter(include_in_schema=False)

END = b"event: end\n"
WAITING_CHUNKS = 64  # a slow reader holds its own feeds back, nobody else's


@router.get("/jobs/{job_id}/stream")
def follow_job(
    job_id: JobId,
    session: ReadSession,
    parts: PartsDep,
    _actor: Annotated[Actor, allow_page(Permission.JOBS_READ)],
    event: After = 0,
    metric: After = 0,
    log: After = 0,
) -> EventSourceResponse:
    """Server-sent events named event, metric and log, each after its own cursor; then `end`, once, when all is sent."""
    jobs.get(session, job_id)
    cursors = {"event": event, "metric": metric, "log": log}
    return EventSourceResponse(
        merged(parts.follower, job_id, cursors), headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    )


async def merged(follower: Follower, job_id: str, cursors: dict[str, int]) -> AsyncIterator[bytes]:
    """The feeds of a job as they come. Each feed's own `end` is held back; one is sent when every feed has ended."""
    sending, receiving = anyio.create_memory_object_stream[bytes](WAITING_CHUNKS)

    async def pump(kind: str, after: int, out: ObjectSendStream[bytes]) -> None:
        async with out:
            async for chunk in follower.stream(kind, job_id, after):
                await out.send(chunk)

    pumps = [
        asyncio.create_task(pump(kind, after, sending.clone()), name=f"feed {kind}") for kind, after in cursors.items()
    ]
    sending.close()  # the pumps hold clones; the loop below ends when the last of them is closed
    n_ended = 0
    try:
        async with receiving:
            async for chunk in receiving:
                if chunk.startswith(END):
                    n_ended += 1
                else:
                    yield chunk
        if n_ended == len(pumps):  # else the service is stopping, or a feed broke: the page comes back by itself
            yield END + b"data: {}\n\n"
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
