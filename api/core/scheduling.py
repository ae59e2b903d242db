"""The scheduler's look: reads the queue, has it planned (`planning`, pure), and does what the plan says, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from api.core import attempts, leases, queue, queue_rows, quotas, sweep_round, sweeping
from api.core.db import Database, now
from api.core.planning.forecast import explain
from api.core.planning.model import FreeNode, Placement, Policy, Preemption, Standing, Usage, Waiting
from api.core.planning.plan import plan
from api.core.queue_rows import OnDevices
from api.core.remembered import Remembered
from api.core.settings import Settings

__all__ = ["LEASE", "Standing", "run_once", "standings"]

LEASE = "scheduler"
MIN_LEASE_S = 10.0

_standings: Remembered[dict[str, Standing]] = Remembered()


@dataclass(frozen=True, slots=True)
class Seen:
    """The queue as it is in the database."""

    waiting: list[Waiting]
    nodes: list[FreeNode]
    on_devices: list[OnDevices]
    usage: Usage
    policy: Policy


def look(session: Session, settings: Settings, at: datetime) -> Seen:
    # The waiting jobs first: one that is placed meanwhile then counts twice, and not, where limits are, not at all.
    waiting = queue_rows.waiting_jobs(session, at)
    nodes = queue_rows.free_nodes(session, settings, at)
    on_devices = queue_rows.on_devices(session, at)
    return Seen(waiting, nodes, on_devices, *queue_rows.usage_and_policy(session, settings, on_devices, at))


def standings(session: Session, settings: Settings) -> dict[str, Standing]:
    """Place in the queue, reason and likely start of every job that may be placed, as of a moment ago.

    A long queue is explained again only now and then, so that readers cost the service no more than a tenth of it.
    """

    def compute() -> dict[str, Standing]:
        seen = look(session, settings, now())
        return explain(seen.waiting, seen.nodes, [each.run for each in seen.on_devices], seen.usage, seen.policy)

    return _standings.get(session.get_bind().engine.pool, compute)


def run_once(database: Database, holder: str, settings: Settings, *, at: datetime | None = None) -> int:
    """One look of the scheduler: takes the lease, sweeps, places, preempts; returns how many jobs were placed.

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
    sweep_round.advance_all(database, settings, at=instant)
    with database.reading() as session:
        seen = look(session, settings, instant)
    runs = [each.run for each in seen.on_devices]
    found = plan(seen.waiting, seen.nodes, runs, seen.usage, seen.policy)
    placed = [placement for placement in found.placements if _place(database, placement, settings)]
    names = {node.node_id: node.name for node in seen.nodes}
    for name in sorted({names[part.node_id] for placement in placed for part in placement.parts}):
        queue.nudge_node(name, settings)
    _preempt(database, found.preemptions, seen.on_devices, settings)
    return len(placed)


def _place(database: Database, placement: Placement, settings: Settings) -> bool:
    # One part: the policy does not let runs span nodes while the agents start each run on one.
    (part,) = placement.parts
    with database.session() as session:
        if not quotas.allows_start(session, placement.job_id, settings):
            return False
        return attempts.place(session, placement.job_id, part.node_id, list(part.devices)) is not None


def _preempt(
    database: Database, preemptions: list[Preemption], on_devices: list[OnDevices], settings: Settings
) -> None:
    by_job = {each.run.job_id: each for each in on_devices}
    for preemption in preemptions:
        with database.session() as session:
            is_asked = attempts.request_preempt(session, preemption.job_id, preemption.reason)
        if is_asked:
            where = by_job[preemption.job_id]
            queue.nudge_stop(where.node_name, where.attempt_id, settings)
