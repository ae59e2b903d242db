"""A job's figures: row by row, followed, or as thinned series for charts."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from api.core import jobs, metrics
from api.core.auth import Actor, Permission
from api.deps import After, JobId, Limit, PartsDep, ReadSession, allow
from api.follow import Item
from api.schemas import Feed, MetricOut, SeriesOut, SeriesPoint, refusals
from api.sse import StreamFrom, can_be_followed, page, stream
from api.wire import metric_item

router = APIRouter(prefix="/v1/jobs/{job_id}/metrics", tags=["jobs"])

MAX_NAMES = 50

Names = Annotated[
    str | None, Query(max_length=4000, description="Only rows that have one of these, as `loss,eval_loss`.")
]
Kind = Annotated[Literal["train", "eval"] | None, Query(description="Only rows of training, or of evaluation.")]


def _split(names: str | None) -> list[str] | None:
    wanted = [name for name in (names or "").split(",") if name]
    return wanted[:MAX_NAMES] or None


@router.get("", summary="A job's figures", response_model=Feed[MetricOut], responses=can_be_followed("metric", 404))
def read_metrics(
    job_id: JobId,
    parts: PartsDep,
    session: ReadSession,
    _actor: Annotated[Actor, allow(Permission.JOBS_READ)],
    stream_from: StreamFrom,
    after: After = 0,
    limit: Limit = 100,
    names: Names = None,
    kind: Kind = None,
    include_superseded: Annotated[bool, Query(description="Also rows that a later attempt did again.")] = False,
) -> Response:
    """Oldest first. A figure that is not finite is null, and `nonfinite` says what it was.

    With `Accept: text/event-stream` it stays open: rows as they come, then `end`.
    """
    jobs.get(session, job_id)
    wanted = _split(names)
    if stream_from is None:
        return page(
            lambda n: [
                metric_item(row) for row in metrics.read(session, job_id, after, n, kind, wanted, include_superseded)
            ],
            after,
            limit,
        )

    def keep(item: Item) -> bool:
        return (kind is None or item["kind"] == kind) and (
            wanted is None or any(name in item["values"] for name in wanted)
        )

    is_filtered = kind is not None or wanted is not None
    return stream(parts, "metric", job_id, start=stream_from, after=after, keep=keep if is_filtered else None)


@router.get("/series", summary="Figures over steps, for a chart", responses=refusals(404))
def read_series(
    job_id: JobId,
    session: ReadSession,
    _actor: Annotated[Actor, allow(Permission.JOBS_READ)],
    names: Annotated[str, Query(min_length=1, max_length=4000, description="As `loss,eval_loss`.")] = "loss,eval_loss",
    max_points: Annotated[int, Query(ge=4, le=5000, description="About how many points a figure.")] = 500,
) -> SeriesOut:
    """Each figure of the newest attempt that did a step, thinned; extremes and what is not finite are kept."""
    jobs.get(session, job_id)
    found = metrics.series(session, job_id, _split(names) or [], max_points)
    return SeriesOut(
        series={
            name: [SeriesPoint(step=p.step, value=p.value, nonfinite=p.nonfinite) for p in points]
            for name, points in found.items()
        }
    )
