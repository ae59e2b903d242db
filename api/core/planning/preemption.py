"""Whom to stop for a job of higher priority: preemptible runs of lower priority, least work lost first. Pure.

Only a strictly higher priority may preempt, so nobody is ever stopped for somebody he was stopped for.
"""

from __future__ import annotations

from collections.abc import Sequence

from api.core.planning.model import Needs, Policy, Running, Waiting
from api.core.planning.rooms import Index, Room, Rooms


class Victims:
    """The runs that may be stopped, by where they hold devices; a plan takes from it."""

    def __init__(self, running: Sequence[Running], rooms: Rooms, policy: Policy) -> None:
        self._policy = policy
        self._rooms = rooms
        self._by_room: dict[int, list[tuple[Running, int]]] = {}
        self._n_helped = 0
        self._failed: dict[Needs, list[tuple[int, int]]] = {}
        self._lowest: int | None = None
        self._is_any_leaving = any(run.is_leaving for run in running)
        for run in running:
            if run.is_preemptible and not run.is_leaving:
                self._lowest = run.priority if self._lowest is None else min(run.priority, self._lowest)
                for room, n_devices in rooms.held_by(run):
                    self._by_room.setdefault(room.order, []).append((run, n_devices))
        for held in self._by_room.values():
            held.sort(key=lambda entry: (_loss(entry[0]), entry[0].priority, entry[0].job_id))

    def choose(self, job: Waiting, index: Index, n_devices: int) -> tuple[Room, list[Running]] | None:
        """The room where the least is lost, and the runs to stop there: none where enough is being freed already."""
        if not self._may_help(job, n_devices):
            return None
        best: tuple[tuple[float, int, int], Room, list[Running]] | None = None
        for order, room in index.rooms.items():
            if index.sizes[order] < n_devices:
                continue
            runs = self._needed(job, room, n_devices + len(room.node.devices) - index.sizes[order])
            if runs is None:
                continue
            cost = (sum(_loss(run) for run in runs), len(runs), order)
            if best is None or cost < best[0]:
                best = cost, room, runs
        if best is None:
            self._failed.setdefault(job.needs, []).append((n_devices, job.priority))
            return None
        self._n_helped += 1
        return best[1], best[2]

    def _may_help(self, job: Waiting, n_devices: int) -> bool:
        """Whether looking at every room can be worth it; what failed fails for more devices or a lower priority too."""
        is_above = self._lowest is not None and self._lowest < job.priority
        if not (is_above or self._is_any_leaving) or self._n_helped >= self._policy.max_preempting:
            return False
        failed = self._failed.get(job.needs, ())
        return not any(n <= n_devices and priority >= job.priority for n, priority in failed)

    def stop(self, run: Running) -> None:
        """From now on its devices count as freed soon."""
        self._is_any_leaving = True
        for room, n_devices in self._rooms.held_by(run):
            room.bring_forward(n_devices, run.left_s, min(self._policy.soon_s, _or_far(run.left_s)))
            self._by_room[room.order] = [entry for entry in self._by_room[room.order] if entry[0] is not run]

    def _needed(self, job: Waiting, room: Room, n_devices: int) -> list[Running] | None:
        lacking = n_devices - self._free_soon(room)
        if lacking <= 0:
            return []
        chosen: list[tuple[Running, int]] = []
        for run, held in self._by_room.get(room.order, ()):
            if run.priority < job.priority and _or_far(run.left_s) > self._policy.soon_s:
                chosen.append((run, held))
                lacking -= held
                if lacking <= 0:
                    return _without_surplus(chosen, -lacking)
        return None

    def _free_soon(self, room: Room) -> int:
        """Devices that are free for good from `soon_s` on, whatever is promised for later."""
        soon_s = self._policy.soon_s
        return min(room.free_at(when) for when in (soon_s, *(when for when, _ in room.promises if when > soon_s)))


def _loss(run: Running) -> float:
    """Device-seconds of work that would have to be done again at worst."""
    return run.lost_s * run.n_devices


def _or_far(left_s: float | None) -> float:
    return float("inf") if left_s is None else left_s


def _without_surplus(chosen: list[tuple[Running, int]], surplus: int) -> list[Running]:
    """Lets go, the dearest first, of those that need not be stopped after all."""
    kept: list[Running] = []
    for run, held in reversed(chosen):
        if held <= surplus:
            surplus -= held
        else:
            kept.append(run)
    return kept[::-1]
