"""Figures for the charts: thinned curves, and everything as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from api.core import jobs, metrics
from api.core.auth import Actor, Permission
from api.core.db import Database
from api.dashboard.access import allow_page
from api.dashboard.curves import CurveShelf, zoomed
from api.deps import JobId, PartsDep, ReadSession
from api.wire import instant

router = APIRouter(include_in_schema=False)

Reader = Annotated[Actor, allow_page(Permission.JOBS_READ)]
Step = Annotated[int | None, Query(ge=0, le=2**53)]
CSV_PAGE = 2000


def shelf_of(request: Request) -> CurveShelf:
    """The service's curves, made when they are first asked for."""
    state = request.app.state
    if not hasattr(state, "curves"):
        state.curves = CurveShelf()
    assert isinstance(state.curves, CurveShelf)
    return state.curves


@router.get("/jobs/{job_id}/figures")
def read_figures(
    job_id: JobId, request: Request, session: ReadSession, _actor: Reader, first: Step = None, last: Step = None
) -> Response:
    """Every figure, thinned, and the cursor to follow from; between two steps when both are given."""
    jobs.get(session, job_id)
    if first is not None and last is not None:
        return JSONResponse(zoomed(session, job_id, first, last))
    return JSONResponse(shelf_of(request).look(session, job_id))


@router.get("/jobs/{job_id}/figures.csv")
def download_figures(
    job_id: JobId, parts: PartsDep, session: ReadSession, _actor: Reader, names: Annotated[str, Query(max_length=2000)]
) -> Response:
    """Every row that has one of the figures; nothing is thinned."""
    jobs.get(session, job_id)
    wanted = [name for name in names.split(",") if name]
    headers = {"Content-Disposition": f'attachment; filename="{job_id}.csv"'}
    return StreamingResponse(_lines(parts.database, job_id, wanted), media_type="text/csv", headers=headers)


def _lines(database: Database, job_id: str, names: list[str]) -> Iterator[str]:
    yield _line(["step", "epoch", "at", "attempt", *names])
    after = 0
    while True:
        with database.reading() as session:
            rows = metrics.read(session, job_id, after, CSV_PAGE, names=names)
        yield "".join(
            _line([row.step, row.epoch, instant(row.at), row.attempt, *(row.values.get(name, "") for name in names)])
            for row in rows
        )
        if len(rows) < CSV_PAGE:
            return
        after = rows[-1].n


def _line(cells: list[Any]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()
