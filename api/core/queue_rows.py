"""What the plan is made from, read from the database: waiting and running jobs, devices, usage, policy.

Only the columns needed are read, and JSON is parsed once for each text: a hundred thousand jobs ask for few things.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Text, cast, func, select
from sqlalchemy.orm import Session

from api.core import quotas
from api.core.planning.model import FreeNode, Needs, Part, Policy, Running, Usage, Waiting
from api.core.planning.shares import Span, merged, usage_of
from api.core.remembered import Remembered
from api.core.settings import Settings
from api.core.states import AttemptState, NodeState, State
from api.core.tables import Attempt, Checkpoint, Device, Job, Node
from api.core.waiting import ready

N_HALF_LIVES = 8  # older usage counts less than a two-hundredth part


class Ended(NamedTuple):
    """Attempts that ended lately, as usage at `at`, and how long a run takes by them."""

    usage: Usage
    typical_run_s: float | None


_ended: Remembered[Ended] = Remembered()


def waiting_jobs(session: Session, at: datetime) -> list[Waiting]:
    """Every queued job that may be placed by now, in no order."""
    query = select(
        Job.id,
        Job.n_devices,
        Job.priority,
        func.coalesce(Job.queued_at, Job.created_at),
        Job.project,
        Job.created_by,
        cast(Job.constraints, Text),
        cast(Job.excluded, Text),
        Job.time_limit_s,
    ).where(Job.state == State.QUEUED.value, *ready(at))
    return [
        Waiting(job_id, n, priority, since, project, user, needs_of(constraints, excluded), limit_s)
        for job_id, n, priority, since, project, user, constraints, excluded, limit_s in session.execute(query)
    ]


@lru_cache(maxsize=4096)
def needs_of(constraints: str, excluded: str) -> Needs:
    """From the JSON of both columns."""
    asked: dict[str, Any] = json.loads(constraints)
    return Needs(
        asked.get("device"),
        asked.get("min_memory_bytes"),
        frozenset((asked.get("labels") or {}).items()),
        frozenset((each["node_id"], each["device"]) for each in json.loads(excluded)),
    )


def free_nodes(session: Session, settings: Settings, at: datetime) -> list[FreeNode]:
    """The devices of every node that was heard of lately, by sort; one that was not holds no placements."""
    heard_after = at - timedelta(seconds=settings.attempt_lease_s)
    query = (
        select(Node.id, Node.name, cast(Node.labels, Text), Device.kind, Device.memory_bytes, Device.index)
        .add_columns(func.coalesce(Device.attempt_id, Device.engine_id))
        .join(Device, Device.node_id == Node.id)
        .where(Node.state == NodeState.READY.value, Node.beat_at >= heard_after, Device.is_present.is_(True))
        .order_by(Node.id, Device.index)
    )
    sorts: dict[tuple[Any, ...], list[tuple[int, bool]]] = {}
    for *sort, index, holder in session.execute(query):
        sorts.setdefault(tuple(sort), []).append((index, holder is None))
    return [
        FreeNode(
            node_id,
            name,
            tuple(index for index, is_free in found if is_free),
            tuple(index for index, _ in found),
            kind,
            memory_bytes,
            frozenset(json.loads(labels).items()),
        )
        for (node_id, name, labels, kind, memory_bytes), found in sorts.items()
    ]


class OnDevices(NamedTuple):
    """A job on devices, and where to nudge its run."""

    run: Running
    span: Span
    node_name: str
    attempt_id: str


def on_devices(session: Session, at: datetime) -> list[OnDevices]:
    """Every job that holds devices."""
    query = (
        select(
            *(Attempt.id, Attempt.job_id, Attempt.node_id, Attempt.devices, Attempt.placed_at, Node.name),
            *(Job.priority, Job.project, Job.created_by, Job.is_preemptible, Job.n_devices, Job.state, Job.stop),
            *(Job.eta_s, Job.progressed_at, Job.time_limit_s),
        )
        .join(Job, Job.id == Attempt.job_id)
        .join(Node, Node.id == Attempt.node_id)
        .where(Attempt.state != AttemptState.ENDED.value)
    )
    saved_at = _newest_checkpoints(session)
    return [_on_devices(row, saved_at, at) for row in session.execute(query)]


def _on_devices(row: Any, saved_at: Mapping[str, datetime], at: datetime) -> OnDevices:
    resumable_at = max(row.placed_at, saved_at.get(row.job_id, row.placed_at))
    run = Running(
        row.job_id,
        (Part(row.node_id, tuple(row.devices)),),
        row.priority,
        row.project,
        row.created_by,
        is_preemptible=row.is_preemptible,
        is_leaving=row.stop is not None or row.state not in (State.STARTING, State.RUNNING),
        left_s=_left_s(row, at),
        lost_s=max(0.0, (at - resumable_at).total_seconds()),
    )
    span = Span(row.project, row.created_by, row.n_devices, max(0.0, (at - row.placed_at).total_seconds()))
    return OnDevices(run, span, row.name, row.id)


def _left_s(row: Any, at: datetime) -> float | None:
    """By its own progress, or at most what its time limit leaves; null: neither is known."""
    known = []
    if row.eta_s is not None and row.progressed_at is not None:
        known.append(row.eta_s - (at - row.progressed_at).total_seconds())
    if row.time_limit_s is not None:
        known.append(row.time_limit_s - (at - row.placed_at).total_seconds())
    return max(0.0, min(known)) if known else None


def _newest_checkpoints(session: Session) -> dict[str, datetime]:
    query = (
        select(Checkpoint.job_id, func.max(Checkpoint.created_at))
        .join(Attempt, Attempt.job_id == Checkpoint.job_id)
        .join(Job, Job.id == Checkpoint.job_id)
        .where(Attempt.state != AttemptState.ENDED.value, Job.is_preemptible.is_(True))
        .group_by(Checkpoint.job_id)
    )
    return {row[0]: row[1] for row in session.execute(query)}


def usage_and_policy(
    session: Session, settings: Settings, on_devices: list[OnDevices], at: datetime
) -> tuple[Usage, Policy]:
    """What was used lately, the running jobs included, and by which rules the plan is made."""
    ended = _ended.get(session.get_bind().engine.pool, lambda: _read_ended(session, settings, at))
    sums = {"half_life_s": settings.share_half_life_s, "window_s": settings.limit_window_s}
    usage = merged(ended.usage, usage_of((each.span for each in on_devices), **sums))
    rows = quotas.listing(session)
    policy = Policy(
        weights={row.name: row.weight for row in rows if row.scope == "project"},
        limits=quotas.limits_of(rows, settings),
        default_limits=quotas.defaults(settings),
        preempts=settings.preempt,
        typical_run_s=ended.typical_run_s,
    )
    return usage, policy


def _read_ended(session: Session, settings: Settings, at: datetime) -> Ended:
    far_s = max(settings.limit_window_s, N_HALF_LIVES * settings.share_half_life_s)
    query = (
        select(
            *(Job.project, Job.created_by, Job.n_devices, Job.state, Job.attempt),
            *(Attempt.number, Attempt.placed_at, Attempt.ended_at),
        )
        .join(Job, Job.id == Attempt.job_id)
        .where(Attempt.ended_at > at - timedelta(seconds=far_s))
    )
    spans, lengths_s = [], []
    for project, user, n_devices, state, newest, number, placed_at, ended_at in session.execute(query):
        assert ended_at is not None  # by the query
        began_s, ended_s = _ago_s(placed_at, at), _ago_s(ended_at, at)
        spans.append(Span(project, user, n_devices, began_s, ended_s))
        if state == State.SUCCEEDED and number == newest:
            lengths_s.append(began_s - ended_s)
    usage = usage_of(spans, half_life_s=settings.share_half_life_s, window_s=settings.limit_window_s)
    return Ended(usage, statistics.median(lengths_s) if lengths_s else None)


def _ago_s(instant: datetime, at: datetime) -> float:
    return max(0.0, (at - instant).total_seconds())
