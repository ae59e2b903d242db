"""Whether the service lives and is ready; the only routes that ask for no key."""

from __future__ import annotations

import logging
from typing import Literal

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from api.core import schema
from api.core.db import Database
from api.deps import PartsDep
from api.query import refuse_unknown_query

CURRENT = "tables are current"

log = logging.getLogger(__name__)
router = APIRouter(prefix="/v1/health", tags=["health"], dependencies=[Depends(refuse_unknown_query)])


class Live(BaseModel):
    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """The parts a request needs. The queue is not one of them: a job waits in the database until it is back."""

    status: Literal["ok", "not_ready"]
    database: Literal["ok", "away"]
    tables: Literal["current", "outdated", "unknown"]


@router.get("/live", summary="The process answers")
async def read_live() -> Live:
    """Says nothing of the database: a restart would not bring that back."""
    return Live()


@router.get("/ready", summary="Requests can be served", responses={503: {"model": Ready, "description": "Not ready"}})
def read_ready(parts: PartsDep, response: Response) -> Ready:
    """The database answers and its tables are those of this version (`python -m api migrate` brings them there)."""
    ready = _look(parts.database, parts.seen)
    if ready.status != "ok":
        response.status_code = 503
    return ready


def _look(database: Database, seen: set[str]) -> Ready:
    try:
        with database.reading() as session:
            session.execute(text("select 1"))
    except SQLAlchemyError as error:
        log.warning("not ready: the database does not answer: %s", error)
        return Ready(status="not_ready", database="away", tables="unknown")
    # Tables that were current once stay so while this process runs; the look itself takes milliseconds.
    if CURRENT not in seen:
        if not schema.is_current(database):
            return Ready(status="not_ready", database="ok", tables="outdated")
        seen.add(CURRENT)
    return Ready(status="ok", database="ok", tables="current")
