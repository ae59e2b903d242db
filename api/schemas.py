"""What the API answers: jobs, events, metrics, logs, models, nodes, errors. Bodies it takes are in `core/specs.py`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from api.core.states import Health, NodeState, State

Item = TypeVar("Item")


class ErrorBody(BaseModel):
    code: str = Field(description="Stable; programs compare this.", examples=["not_found"])
    message: str = Field(description="What was found, what was expected, what to do.")
    param: str | None = Field(description="Path of the field at fault, as in the body.", examples=["training.lr"])
    details: list[dict[str, Any]] = Field(description="Every fault: {param, message, code, hint}.")


class ErrorOut(BaseModel):
    error: ErrorBody


class Page(BaseModel, Generic[Item]):
    """One page of a list; pass `next` as `after` for the one that follows."""

    data: list[Item]
    has_more: bool
    next: str | None = Field(description="Cursor of the page that follows; null at the end.")


class Feed(BaseModel, Generic[Item]):
    """One page of something that grows. `next` is never null: ask again later for what will have come by then."""

    data: list[Item]
    has_more: bool
    next: int = Field(description="`n` of the last item seen; pass it as `after`.")


class JobBrief(BaseModel):
    """A job as lists show it."""

    id: str
    name: str
    state: State
    phase: str | None = Field(description="What the run is doing: loading, training, evaluating, saving, ...")
    health: Health
    cause: dict[str, Any] | None = Field(description="Why it failed: {code, message, hint, param, line, rank, ...}.")
    method: str
    model: str
    dataset: dict[str, Any]
    adapter: dict[str, Any] | None
    training: dict[str, Any]
    parallel: dict[str, Any]
    labels: dict[str, str]
    priority: int
    project: str
    preemptible: bool = Field(description="May be stopped at a checkpoint for a job of higher priority.")
    resources: dict[str, Any] = Field(description="What its devices must be: {device, min_memory_bytes, labels}.")
    notes: str | None
    continue_from: dict[str, Any] | None
    depends_on: list[str] = Field(description="Jobs that must have succeeded before it starts.")
    time_limit_s: int | None = Field(description="Seconds it may run, over all attempts.")
    planned_steps: int | None
    step: int
    epoch: float | None
    progress: float = Field(description="Part of the planned steps that is done, 0 to 1.")
    eta_s: float | None = Field(description="Seconds of training left.")
    eta_to_start_s: float | None = Field(description="Seconds until it is likely to start; null: unknown.")
    queue_position: int | None = Field(description="1 is next; null when it does not wait for devices.")
    waiting_reason: str | None
    not_before: datetime | None = Field(description="Its next attempt starts no earlier, after a fault.")
    excluded: list[dict[str, Any]] = Field(
        description="Where it failed twice: {node_id, device}; null: the whole node."
    )
    faults: dict[str, int] = Field(description="Attempts ended by faults of the service, the node, the user.")
    attempt: int
    best_step: int | None
    best_value: float | None
    metric_for_best: str | None
    latest: dict[str, float | None] = Field(description="Newest value of each metric; null: not finite.")
    latest_nonfinite: dict[str, str] = Field(description="What the nulls in `latest` are: NaN, Infinity, -Infinity.")
    created_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None


class JobOut(JobBrief):
    """A job with all that is known of it."""

    resolved: dict[str, Any] = Field(description="What the run really uses; frozen when the job was created.")
    preflight: dict[str, Any] | None = Field(description="What was found before devices were taken.")


class EventOut(BaseModel):
    n: int
    at: datetime
    level: Literal["debug", "info", "warning", "error"] | str
    kind: str
    message: str
    attempt: int | None
    data: dict[str, Any]


class MetricOut(BaseModel):
    n: int
    at: datetime
    kind: str = Field(description="train or eval")
    attempt: int
    step: int
    epoch: float | None
    values: dict[str, float | None]
    nonfinite: dict[str, str] = Field(description="What the nulls in `values` are: NaN, Infinity, -Infinity.")


class SeriesPoint(BaseModel):
    step: int
    value: float | None
    nonfinite: str | None = None


class SeriesOut(BaseModel):
    """Figures over steps, thinned for a chart; extremes are kept."""

    series: dict[str, list[SeriesPoint]]


class LogOut(BaseModel):
    n: int
    at: datetime
    source: str = Field(description="rank0, rank1, ..., launcher")
    rank: int | None
    text: str


class ModelIn(BaseModel):
    """A base model to register."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=200, description="What jobs call it.")
    source: str = Field(min_length=1, max_length=4096, description="An absolute folder on the nodes, or a hub id.")
    revision: str | None = Field(default=None, max_length=200, description="Commit or tag on the hub.")


class ModelOut(BaseModel):
    id: str
    name: str
    source: str
    revision: str | None
    details: dict[str, Any] = Field(description="From its config.json and weight files, when it is a folder.")
    created_at: datetime


class DeviceOut(BaseModel):
    index: int
    kind: str = Field(description="cpu or cuda")
    name: str
    memory_bytes: int | None
    is_present: bool
    job_id: str | None = Field(description="The job that holds it.")


class NodeOut(BaseModel):
    id: str
    name: str
    state: NodeState
    hold: str | None = Field(description="draining or cordoned: it is given no further work, whatever its state.")
    labels: dict[str, str]
    facts: dict[str, Any]
    devices: list[DeviceOut]
    beat_at: datetime
    created_at: datetime


REFUSALS = {
    400: "The body is not JSON.",
    401: "No API key, or one that is not known.",
    403: "The key lacks the permission.",
    404: "There is no such thing.",
    409: "The state has moved on.",
    413: "The body is too large.",
    422: "What was sent cannot be accepted; `details` lists every fault.",
    429: "As much as may wait does; try again later.",
    503: "The database, the storage or the disk does not answer; try again.",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For a route's `responses`: 401, 403, 422 and 503, which every route has, and the given ones."""
    return {
        status: {"model": ErrorOut, "description": REFUSALS[status]}
        for status in sorted({401, 403, 422, 503, *statuses})
    }
