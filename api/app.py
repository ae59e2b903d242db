"""The HTTP application: its parts, its routes, what happens when it starts and stops.

Every module in `api/routes`, `api/openai` and `api/dashboard` that has a `router` is part of it.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import pkgutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from fastapi import APIRouter, FastAPI
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.staticfiles import StaticFiles

from api import dashboard, errors, openai, routes
from api.core.auth import make_first_key
from api.core.db import Database
from api.core.settings import Settings
from api.core.storage import Storage, make_storage
from api.deps import Parts
from api.edge import Edge
from api.follow import Follower
from api.openai.errors import OpenaiErrors
from api.wire import READERS

log = logging.getLogger(__name__)

TRY_AGAIN_S = 2.0
DESCRIPTION = (
    "A self-hosted fine-tuning service: POST a job, watch it, download the best checkpoint. "
    'Errors have one shape: `{"error": {"code", "message", "param", "details"}}`. '
    "Lists answer `{data, has_more, next}`; pass `next` as `after` for the page that follows."
)


def create_app(
    settings: Settings,
    *,
    database: Database | None = None,
    storage: Storage | None = None,
    tick_s: float = 0.25,
) -> FastAPI:
    """The application over a database and a storage; those that are not given are made from the settings.

    A database that was given stays open when the application stops. Nothing is read or written before the start.
    """
    own = None if database else Database(settings.database)
    database = database or own
    assert database is not None
    parts = Parts(settings, database, storage or make_storage(settings), Follower(database, READERS, tick_s=tick_s))

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        key_maker = await _start(parts)
        yield
        parts.follower.close()
        if key_maker is not None:
            key_maker.cancel()
            with suppress(asyncio.CancelledError):
                await key_maker
        if own is not None:
            own.close()

    app = FastAPI(
        title="Trainyard",
        version="0.1.0",
        description=DESCRIPTION,
        lifespan=lifespan,
        openapi_url="/v1/openapi.json",
        docs_url=None,  # the stock pages load scripts from elsewhere
        redoc_url=None,
    )
    app.state.parts = parts
    errors.install(app)
    for router in _routers():
        app.include_router(router)
    static = Path(dashboard.__path__[0]) / "static"
    if static.is_dir():
        app.mount("/static", StaticFiles(directory=static), name="static")
    app.add_middleware(Edge, max_body_bytes=settings.max_body_bytes)
    app.add_middleware(OpenaiErrors)  # added last is outermost: it sees every error there is
    return app


def _routers() -> Iterator[APIRouter]:
    for package in (routes, openai, dashboard):
        for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda found: found.name):
            router = getattr(importlib.import_module(f"{package.__name__}.{module.name}"), "router", None)
            if isinstance(router, APIRouter):
                yield router


async def _start(parts: Parts) -> asyncio.Task[None] | None:
    """Make the folders and the first key. Without a database the service starts all the same, says that it is not
    ready, and makes the key as soon as there is one; the task that waits for it is returned."""
    parts.settings.data_dir.mkdir(parents=True, exist_ok=True)
    try:
        await run_in_threadpool(make_first_key, parts.database, parts.settings)
    except SQLAlchemyError as error:
        log.warning("started without a usable database: %s", error)
        return asyncio.create_task(_make_key_later(parts), name="make first key")
    return None


async def _make_key_later(parts: Parts) -> None:
    while True:
        await asyncio.sleep(TRY_AGAIN_S)
        with suppress(SQLAlchemyError):
            await run_in_threadpool(make_first_key, parts.database, parts.settings)
            return
