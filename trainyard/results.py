"""What the service answers, as types. They are dictionaries at run time, as the API reference shows them."""

from __future__ import annotations

from typing import Any, Generic, TypedDict, TypeVar

T = TypeVar("T")
Json = dict[str, Any]


class Page(TypedDict, Generic[T]):
    """One page of a list."""

    data: list[T]
    has_more: bool
    next: str | int | None


class Dataset(TypedDict):
    id: str
    name: str
    format: str | None
    n_rows: int
    size_bytes: int
    sha256: str
    notes: list[str]
    created_at: str


class Model(TypedDict):
    id: str
    name: str
    source: str
    revision: str | None
    details: Json
    created_at: str


class Device(TypedDict):
    index: int
    kind: str
    name: str
    memory_bytes: int | None
    is_present: bool
    job_id: str | None


class Node(TypedDict):
    id: str
    name: str
    state: str
    hold: str | None
    labels: dict[str, str]
    facts: Json
    devices: list[Device]
    beat_at: str
    created_at: str


class Event(TypedDict):
    n: int
    at: str
    level: str
    kind: str
    message: str
    attempt: int | None
    data: Json


class Metric(TypedDict):
    """The figures of one step; a figure that is not finite is null in `values` and named in `nonfinite`."""

    n: int
    at: str
    kind: str
    attempt: int
    step: int
    epoch: float | None
    values: dict[str, float | None]
    nonfinite: dict[str, str]


class LogLine(TypedDict):
    n: int
    at: str
    source: str
    rank: int | None
    text: str


class File(TypedDict):
    path: str
    size_bytes: int
    sha256: str


class Checkpoint(TypedDict):
    step: int
    epoch: float | None
    size_bytes: int
    metrics: Json
    is_best: bool
    is_last: bool
    files: list[File]
    created_at: str


class Artifact(TypedDict):
    path: str
    size_bytes: int
    sha256: str
    created_at: str


class Export(TypedDict):
    id: str
    job_id: str
    step: int
    kind: str
    dtype: str
    state: str
    size_bytes: int
    files: list[File]
    proof: Json
    cause: Json | None


class Key(TypedDict):
    id: str
    name: str
    role: str
    permissions: list[str]
    state: str
    created_at: str
    created_by: str | None
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None


class NewKey(Key):
    secret: str


class Webhook(TypedDict):
    id: str
    name: str
    url: str
    format: str
    events: list[str]
    is_enabled: bool
    disabled_reason: str | None
    created_at: str


class NewWebhook(Webhook):
    secret: str


class Delivery(TypedDict):
    id: str
    event_id: str
    type: str
    job_id: str | None
    state: str
    n_tries: int
    next_at: str | None
    tries: list[Json]
    created_at: str
    ended_at: str | None
