"""Which waiting jobs go onto which devices. `plan` and `explain` are pure; `run_once` does it to the database.

Order: priority, then time in the queue. A gang is whole and fits one node. The first job that does not fit keeps the
node that needs the fewest further devices for itself, so smaller jobs behind it cannot starve it; other nodes they may
have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.core import attempts, leases, queue, sweeping, waiting
from api.core.db import Database, now
from api.core.settings import Settings
from api.core.states import NodeState, State
from api.core.tables import Device, Job, Node

LEASE = "scheduler"
MIN_LEASE_S = 10.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued job, as far as placing it goes."""

    job_id: str
    n_devices: int
    priority: int
    queued_at: datetime


@dataclass(frozen=True, slots=True)
class FreeNode:
    """A node that answers: the device indexes that are free, and how many it has in all."""

    node_id: str
    name: str
    free: tuple[int, ...]
    n_devices: int


@dataclass(frozen=True, slots=True)
class Placement:
    job_id: str
    node_id: str
    devices: tuple[int, ...]


class Standing(NamedTuple):
    """Place in the queue, from 1, and why the job waits, in words."""

    position: int
    reason: str


class _Kept(NamedTuple):
    """The node kept free for the first job that does not fit, and how many devices it lacks."""

    job_id: str
    node: FreeNode
    n_missing: int


class _Pool:
    """Nodes by how many devices they have free, so that the tightest fit is found without looking at each."""

    def __init__(self, nodes: Iterable[FreeNode]) -> None:
        self._by_count: dict[int, dict[str, list[int]]] = {}
        for node in nodes:
            self._put(node.node_id, list(node.free))

    def _put(self, node_id: str, free: list[int]) -> None:
        if free:
            self._by_count.setdefault(len(free), {})[node_id] = free

    def take(self, n_devices: int) -> tuple[str, tuple[int, ...]] | None:
        """The first `n_devices` of the node with the fewest free that has as many."""
        fitting = [count for count, nodes in self._by_count.items() if count >= n_devices and nodes]
        if not fitting:
            return None
        node_id, free = self._by_count[min(fitting)].popitem()
        self._put(node_id, free[n_devices:])
        return node_id, tuple(free[:n_devices])

    def free_on(self, node_id: str) -> int:
        return next((count for count, nodes in self._by_count.items() if node_id in nodes), 0)

    def keep(self, node_id: str) -> None:
        """Nothing more is placed on that node."""
        for nodes in self._by_count.values():
            nodes.pop(node_id, None)


def in_order(waiting: Iterable[Waiting]) -> list[Waiting]:
    """Higher priority first, then who waits longer; the id settles what is left."""
    return sorted(waiting, key=lambda job: (-job.priority, job.queued_at, job.job_id))


def plan(waiting: Sequence[Waiting], nodes: Sequence[FreeNode]) -> list[Placement]:
    """The placements to be made now, in order."""
    return _plan(in_order(waiting), nodes)[0]


def _plan(ordered: Sequence[Waiting], nodes: Sequence[FreeNode]) -> tuple[list[Placement], _Kept | None]:
    pool = _Pool(sorted(nodes, key=lambda node: node.node_id, reverse=True))
    largest = max((node.n_devices for node in nodes), default=0)
    placements: list[Placement] = []
    kept: _Kept | None = None
    for job in ordered:
        if job.n_devices > largest:
            continue  # nothing is kept free for what fits no node
        found = pool.take(job.n_devices)
        if found is not None:
            placements.append(Placement(job.job_id, *found))
        elif kept is None:
            kept = _keep(job, nodes, pool)
            pool.keep(kept.node.node_id)
    return placements, kept


def _keep(job: Waiting, nodes: Sequence[FreeNode], pool: _Pool) -> _Kept:
    """Where it lacks the fewest devices; what it lacks there only shrinks, because nothing is placed there any more."""
    lacking = {node: job.n_devices - pool.free_on(node.node_id) for node in nodes if node.n_devices >= job.n_devices}
    node = min(lacking, key=lambda node: (lacking[node], node.node_id))
    return _Kept(job.job_id, node, lacking[node])


def explain(waiting: Sequence[Waiting], nodes: Sequence[FreeNode]) -> dict[str, Standing]:
    """For each waiting job its place in the queue and what it waits for."""
    ordered = in_order(waiting)
    placements, kept = _plan(ordered, nodes)
    placed = {placement.job_id for placement in placements}
    largest = max(nodes, key=lambda node: node.n_devices, default=None)
    return {
        job.job_id: Standing(position, _reason(job, position, placed, kept, largest))
        for position, job in enumerate(ordered, 1)
    }


def _reason(job: Waiting, position: int, placed: set[str], kept: _Kept | None, largest: FreeNode | None) -> str:
    if job.job_id in placed:
        return "about to start"
    needs = _devices(job.n_devices)
    if largest is None or largest.n_devices == 0:
        return f"needs {needs}; no node with devices answers: start a worker"
    if job.n_devices > largest.n_devices:
        return (
            f"needs {needs} on one node; the largest node that answers, {largest.name}, has {largest.n_devices}: "
            "ask for fewer processes or add a larger node"
        )
    if kept is not None and kept.job_id == job.job_id:
        return f"needs {needs}; waits for {kept.n_missing} more on {kept.node.name}, which is kept free for it"
    before = position - 1
    return f"needs {needs}; {before} {'job is' if before == 1 else 'jobs are'} before it"


def _devices(count: int) -> str:
    return "1 device" if count == 1 else f"{count} devices"


def waiting_jobs(session: Session, *, at: datetime | None = None) -> list[Waiting]:
    """Every queued job that may be placed by now, in no order."""
    query = select(Job.id, Job.n_devices, Job.priority, Job.queued_at, Job.created_at)
    query = query.where(Job.state == State.QUEUED, *waiting.ready(at or now()))
    return [
        Waiting(row.id, row.n_devices, row.priority, row.queued_at or row.created_at) for row in session.execute(query)
    ]


def free_nodes(session: Session, settings: Settings, *, at: datetime | None = None) -> list[FreeNode]:
    """Every node that was heard of lately; one that was not holds no placements."""
    heard_after = (at or now()) - timedelta(seconds=settings.attempt_lease_s)
    query = (
        select(Node.id, Node.name, Device.index, Device.attempt_id)
        .join(Device, Device.node_id == Node.id)
        .where(Node.state == NodeState.READY.value, Node.beat_at >= heard_after, Device.is_present.is_(True))
        .order_by(Node.id, Device.index)
    )
    names: dict[str, str] = {}
    devices: dict[str, list[tuple[int, bool]]] = {}
    for node_id, name, index, attempt_id in session.execute(query):
        names[node_id] = name
        devices.setdefault(node_id, []).append((index, attempt_id is None))
    return [
        FreeNode(node_id, names[node_id], tuple(index for index, is_free in found if is_free), len(found))
        for node_id, found in devices.items()
    ]


def standings(session: Session, settings: Settings) -> dict[str, Standing]:
    """`explain` for the queue as it is in the database now."""
    return explain(waiting_jobs(session), free_nodes(session, settings))


def run_once(database: Database, holder: str, settings: Settings, *, at: datetime | None = None) -> int:
    """One look of the scheduler: takes the lease, sweeps, places; returns how many jobs were placed.

    Another holder's lease makes it return 0 at once. Everything it does is guarded row by row, so even two that both
    think they lead place nothing twice.
    """
    instant = at or now()
    with database.session() as session:
        watching_since = leases.take(session, LEASE, holder, max(MIN_LEASE_S, 3 * settings.look_every_s), at=instant)
    if watching_since is None:
        return 0
    for job_id in sweeping.sweep(database, settings, watching_since=watching_since, at=instant):
        queue.remind_preflight(job_id, settings)
    with database.reading() as session:
        nodes = free_nodes(session, settings, at=instant)
        placements = plan(waiting_jobs(session, at=instant), nodes)
    placed_on = [placement.node_id for placement in placements if _place(database, placement)]
    for node in nodes:
        if node.node_id in placed_on:
            queue.nudge_node(node.name, settings)
    return len(placed_on)


def _place(database: Database, placement: Placement) -> bool:
    with database.session() as session:
        return attempts.place(session, placement.job_id, placement.node_id, list(placement.devices)) is not None
