"""The plan: from waiting jobs, nodes, running jobs, usage and policy to placements and preemptions. Pure.

In order of `shares.in_order` each job gets devices if its limits allow it and a whole gang fits. The first job of each
set of needs that does not fit has devices kept for it: others may use them only if they are gone, by an enforced time
limit, before it can start. So small jobs fill the gaps and cannot starve a large one. A job of higher priority may
instead have preemptible runs stopped for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from api.core.planning.model import (
    FreeNode,
    Kept,
    Needs,
    Part,
    Placement,
    Plan,
    Policy,
    Preemption,
    Running,
    Usage,
    Waiting,
)
from api.core.planning.preemption import Victims
from api.core.planning.quotas import Ledger
from api.core.planning.reasons import never_fits
from api.core.planning.rooms import Index, Room, Rooms
from api.core.planning.shares import committed, in_order


def plan(
    waiting: Iterable[Waiting],
    nodes: Iterable[FreeNode],
    running: Sequence[Running] = (),
    usage: Usage | None = None,
    policy: Policy | None = None,
) -> Plan:
    """What is to be placed and preempted now. The same input in any order gives the same plan."""
    return Planner(waiting, nodes, running, usage or Usage(), policy or Policy()).run()


class Planner:
    """One plan in the making; afterwards `rooms` says what is left, for the forecast."""

    def __init__(
        self,
        waiting: Iterable[Waiting],
        nodes: Iterable[FreeNode],
        running: Sequence[Running],
        usage: Usage,
        policy: Policy,
    ) -> None:
        self.policy = policy
        self.rooms = Rooms(nodes, running, policy.soon_s)
        self._ledger = Ledger(running, usage, policy)
        self._victims = Victims(running, self.rooms, policy)
        shares = committed(usage.shares, running, policy)
        self._plan = Plan([], [], in_order(waiting, shares, policy), {}, {})
        self._has_kept: set[Needs] = set()
        self._impossible: dict[tuple[Needs, int], str | None] = {}

    def run(self) -> Plan:
        plan = self._plan
        for job in plan.ordered:
            refusal = self._ledger.refusal(job) or self._never(job)
            if refusal is not None:
                plan.refusals[job.job_id] = refusal
            else:
                self._place_or_keep(job)
        return plan

    def _never(self, job: Waiting) -> str | None:
        """Why no node could ever hold it; such a job has nothing kept for it."""
        key = (job.needs, job.n_devices)
        if key not in self._impossible:
            is_possible = self.rooms.index(job.needs).shape(job.n_devices, self.policy.spans_nodes) is not None
            nodes = [room.node for room in self.rooms.all]
            self._impossible[key] = None if is_possible else never_fits(job, nodes, self.policy.spans_nodes)
        return self._impossible[key]

    def _place_or_keep(self, job: Waiting) -> None:
        index = self.rooms.index(job.needs)
        shape = index.shape(job.n_devices, self.policy.spans_nodes)
        assert shape is not None  # said to be possible before
        n_rooms, part = shape
        found = index.find(n_rooms, part, math.inf if job.limit_s is None else job.limit_s)
        if found is not None:
            self._place(job, index, found, part)
            return
        is_helped = self.policy.preempts and n_rooms == 1 and self._preempt(job, index, part)
        if not is_helped and job.needs not in self._has_kept:
            self._keep(job, index, n_rooms, part)

    def _place(self, job: Waiting, index: Index, found: list[Room], part: int) -> None:
        parts = tuple(Part(room.node.node_id, index.take(room, part)) for room in found)
        for room in found:
            room.release_later(part, job.limit_s)
        self._ledger.take(job)
        self._plan.placements.append(Placement(job.job_id, parts))

    def _keep(self, job: Waiting, index: Index, n_rooms: int, part: int) -> None:
        """Keeps the rooms where it can start soonest; where that is not known, those that lack the fewest devices."""
        self._has_kept.add(job.needs)
        choices = sorted(
            (_when(index, room, part), room.n_missing(part), order)
            for order, room in index.rooms.items()
            if index.sizes[order] >= part
        )[:n_rooms]
        start_s = max(when for when, _, _ in choices)
        known_s = start_s if math.isfinite(start_s) else None
        rooms = [self.rooms.all[order] for _, _, order in choices]
        n_missing = sum(max(0, missing) for _, missing, _ in choices)
        for room in rooms:
            room.promise(part, known_s)
        self._plan.kept[job.job_id] = Kept(_names(rooms), n_missing, known_s)

    def _preempt(self, job: Waiting, index: Index, part: int) -> bool:
        """Whether runs are stopped, or were before, so that it can start soon; the devices are kept for it then."""
        chosen = self._victims.choose(job, index, part)
        if chosen is None:
            return False
        room, runs = chosen
        for run in runs:
            self._victims.stop(run)
            reason = f"job {job.job_id} of priority {job.priority} needs the devices; this one has {run.priority}"
            self._plan.preemptions.append(Preemption(run.job_id, job.job_id, reason))
        missing = max(0, room.n_missing(part))
        start_s = index.soonest(room, part)
        room.promise(part, start_s)
        self._plan.kept[job.job_id] = Kept(_names([room]), missing, start_s, is_preempting=True)
        return True


def _when(index: Index, room: Room, n_devices: int) -> float:
    start_s = index.soonest(room, n_devices)
    return math.inf if start_s is None else start_s


def _names(rooms: Iterable[Room]) -> tuple[str, ...]:
    return tuple(room.node.name for room in rooms)
