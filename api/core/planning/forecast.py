"""When each waiting job will likely start. Pure, and near linear in the queue: an estimate, not a promise.

The jobs that were not placed take, in their order, the devices that come free first, and hold them for as long as they
are expected to run. Nodes that serve the same needs are one pot; where the pieces lie within a node is not looked at.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from api.core.planning.model import FreeNode, Plan, Policy, Running, Standing, Usage, Waiting
from api.core.planning.plan import Planner
from api.core.planning.reasons import standings_of
from api.core.planning.rooms import Room, Rooms


def explain(
    waiting: Sequence[Waiting],
    nodes: Sequence[FreeNode],
    running: Sequence[Running] = (),
    usage: Usage | None = None,
    policy: Policy | None = None,
) -> dict[str, Standing]:
    """For each waiting job its place in the queue, what it waits for, and in how many seconds it will likely start."""
    planner = Planner(waiting, nodes, running, usage or Usage(), policy or Policy())
    plan = planner.run()
    return standings_of(plan, starts(plan, planner.rooms, planner.policy))


def starts(plan: Plan, rooms: Rooms, policy: Policy) -> dict[str, float]:
    """Seconds to the likely start; jobs of which nothing can be said are left out."""
    pots = _pots(rooms, policy)
    found = {placement.job_id: 0.0 for placement in plan.placements}
    for job in plan.ordered:
        if job.job_id in found or job.job_id in plan.refusals:
            continue
        at_s = pots[next(iter(rooms.index(job.needs).rooms))].take(job.n_devices, policy.expected_s(job))
        kept = plan.kept.get(job.job_id)
        if kept is not None and kept.start_s is not None:
            at_s = kept.start_s
        if math.isfinite(at_s):
            found[job.job_id] = at_s
    return found


class _Pot:
    """Devices by when they come free."""

    def __init__(self) -> None:
        self._free: list[tuple[float, int]] = []

    def put(self, at_s: float, n_devices: int) -> None:
        if n_devices:
            heapq.heappush(self._free, (at_s, n_devices))

    def take(self, n_devices: int, for_s: float) -> float:
        """When so many are free together; infinite where they never are, and nothing is taken then."""
        taken, lacking, at_s = [], n_devices, 0.0
        while lacking > 0 and self._free:
            at_s, count = heapq.heappop(self._free)
            taken.append((at_s, count))
            lacking -= count
        if lacking > 0 or math.isinf(at_s):
            for entry in taken:
                heapq.heappush(self._free, entry)
            return math.inf
        if lacking < 0:
            heapq.heappush(self._free, (at_s, -lacking))
        heapq.heappush(self._free, (at_s + for_s, n_devices))
        return at_s


def _pots(rooms: Rooms, policy: Policy) -> dict[int, _Pot]:
    """The pot of each room, by the room's order: rooms that any job could use alike share one."""
    leader = list(range(len(rooms.all)))

    def find(order: int) -> int:
        while leader[order] != order:
            leader[order] = leader[leader[order]]
            order = leader[order]
        return order

    for index in rooms.indexes().values():
        orders = list(index.rooms)
        for order in orders[1:]:
            leader[find(order)] = find(orders[0])
    pots: dict[int, _Pot] = {}
    for room in rooms.all:
        _fill(pots.setdefault(find(room.order), _Pot()), room, policy)
    return {room.order: pots[find(room.order)] for room in rooms.all}


def _fill(pot: _Pot, room: Room, policy: Policy) -> None:
    pot.put(0.0, len(room.free))
    for at_s, n_devices in room.releases:
        pot.put(at_s, n_devices)
    pot.put(math.inf if policy.typical_run_s is None else policy.typical_run_s, room.n_unknown)
