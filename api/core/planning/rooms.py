"""Devices while a plan is made: what is free, what will be freed when, and what is promised to jobs that wait. Pure.

A room is the devices of one sort on one node. An index for each set of needs finds the tightest room that fits without
looking at every node, and remembers what did not fit: within one plan devices only become fewer.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

from api.core.planning.model import FreeNode, Needs, Running


class Room:
    """One node's devices of one sort. A promise holds devices back from its instant on, without an end."""

    __slots__ = ("free", "indexes", "n_unknown", "node", "order", "promises", "releases")

    def __init__(self, order: int, node: FreeNode) -> None:
        self.order = order
        self.node = node
        self.free = list(node.free)
        self.releases: list[tuple[float, int]] = []
        self.promises: list[tuple[float, int]] = []
        self.n_unknown = 0  # devices of runs whose end nobody knows
        self.indexes: list[Index] = []

    def free_at(self, at_s: float) -> int:
        freed = sum(n for when, n in self.releases if when <= at_s)
        return len(self.free) + freed - sum(n for when, n in self.promises if when <= at_s)

    def fits_beside(self, n_devices: int, for_s: float) -> bool:
        """Whether a job of that length takes nothing from what is promised here."""
        if len(self.free) < n_devices:
            return False
        return all(self.free_at(when) >= n_devices for when, _ in self.promises if when < for_s)

    def soonest(self, n_devices: int) -> float | None:
        """From when on as many are free for good, by what is known; null: nobody can say."""
        marks = sorted({0.0, *(when for when, _ in self.releases), *(when for when, _ in self.promises)})
        found = None
        for mark in reversed(marks):
            if self.free_at(mark) < n_devices:
                break
            found = mark
        return found

    def n_missing(self, n_devices: int) -> int:
        """How many further devices it lacks now, counting everything promised as gone."""
        return n_devices - len(self.free) + sum(n for _, n in self.promises)

    def release_later(self, n_devices: int, left_s: float | None) -> None:
        if left_s is None:
            self.n_unknown += n_devices
        else:
            self.releases.append((left_s, n_devices))

    def bring_forward(self, n_devices: int, left_s: float | None, to_s: float) -> None:
        """A run that was to end after `left_s` is stopped and ends after `to_s`."""
        if left_s is None:
            self.n_unknown -= n_devices
        else:
            self.releases.remove((left_s, n_devices))
        self.releases.append((to_s, n_devices))

    def promise(self, n_devices: int, at_s: float | None) -> None:
        """Null: it may be any moment, so from now on."""
        self.promises.append((at_s or 0.0, n_devices))
        for index in self.indexes:
            index.keep(self)


class Index:
    """The rooms that suit one set of needs, by how many of their devices suit and are free."""

    def __init__(self, needs: Needs, rooms: Iterable[Room]) -> None:
        self._without = {(node, device) for node, device in needs.excluded if device is not None}
        self.rooms = {room.order: room for room in rooms if room.node.suits(needs)}
        self.sizes = {order: self._size(room) for order, room in self.rooms.items()}
        self.largest = max(self.sizes.values(), default=0)
        self._buckets: list[list[int]] = [[] for _ in range(self.largest + 1)]
        self._kept: dict[int, Room] = {}
        self._failed: dict[tuple[int, int], float] = {}
        for room in self.rooms.values():
            room.indexes.append(self)
            if room.promises:
                self._kept[room.order] = room
            self._buckets[len(self.usable(room))].append(room.order)
        for bucket in self._buckets:
            heapq.heapify(bucket)

    def _size(self, room: Room) -> int:
        node = room.node
        return sum((node.node_id, device) not in self._without for device in node.devices)

    def usable(self, room: Room) -> Sequence[int]:
        if not self._without:
            return room.free
        return [device for device in room.free if (room.node.node_id, device) not in self._without]

    def soonest(self, room: Room, n_devices: int) -> float | None:
        """As the room says it; devices that do not suit are taken to come free first."""
        return room.soonest(n_devices + len(room.node.devices) - self.sizes[room.order])

    def shape(self, n_devices: int, spans_nodes: bool) -> tuple[int, int] | None:
        """(rooms, devices in each) of a gang: one room where it is large enough, else equal parts on the fewest."""
        if n_devices <= self.largest:
            return 1, n_devices
        if not spans_nodes or self.largest == 0:
            return None
        for n_rooms in range(-(-n_devices // self.largest), min(n_devices, len(self.rooms)) + 1):
            part, rest = divmod(n_devices, n_rooms)
            if rest == 0 and sum(size >= part for size in self.sizes.values()) >= n_rooms:
                return n_rooms, part
        return None

    def find(self, n_rooms: int, part: int, for_s: float) -> list[Room] | None:
        """Rooms with so many free devices each, the tightest first; null: not as many, and none is taken then."""
        if any(rooms <= n_rooms and n <= part and until <= for_s for (rooms, n), until in self._failed.items()):
            return None
        found = self._open(n_rooms, part)
        for room in self._kept.values():
            if len(found) == n_rooms:
                break
            if len(self.usable(room)) >= part and room.fits_beside(part, for_s):
                found.append(room)
        if len(found) == n_rooms:
            return found
        shape = (n_rooms, part)
        self._failed[shape] = min(for_s, self._failed.get(shape, math.inf))
        return None

    def _open(self, n_rooms: int, part: int) -> list[Room]:
        """Up to so many rooms of which nothing is promised."""
        found: dict[int, Room] = {}
        for count in range(part, self.largest + 1):
            bucket, seen = self._buckets[count], []
            while bucket and len(found) < n_rooms:
                order = heapq.heappop(bucket)
                room = self.rooms[order]
                if order in self._kept or order in found or len(self.usable(room)) != count:
                    continue  # it has changed since it was put here, and is elsewhere by now
                found[order] = room
                seen.append(order)
            for order in seen:
                heapq.heappush(bucket, order)
            if len(found) == n_rooms:
                break
        return list(found.values())

    def take(self, room: Room, n_devices: int) -> tuple[int, ...]:
        taken = tuple(self.usable(room)[:n_devices])
        gone = set(taken)
        room.free = [device for device in room.free if device not in gone]
        for index in room.indexes:
            index.moved(room)
        return taken

    def moved(self, room: Room) -> None:
        """Its number of free devices is another now."""
        if room.order not in self._kept:
            heapq.heappush(self._buckets[len(self.usable(room))], room.order)

    def keep(self, room: Room) -> None:
        """Something is promised there: only jobs that do not disturb it may have the rest."""
        self._kept[room.order] = room


class Rooms:
    """Every room of a plan, and the index for each set of needs asked for so far."""

    def __init__(self, nodes: Iterable[FreeNode], running: Iterable[Running], leave_s: float) -> None:
        ordered = sorted(nodes, key=lambda node: (node.node_id, node.devices))
        self.all = [Room(order, node) for order, node in enumerate(ordered)]
        self._by_device = {(room.node.node_id, device): room for room in self.all for device in room.node.devices}
        self._indexes: dict[Needs, Index] = {}
        for run in running:
            left_s = leave_s if run.is_leaving else run.left_s
            for room, n_devices in self.held_by(run):
                room.release_later(n_devices, left_s)

    def held_by(self, run: Running) -> list[tuple[Room, int]]:
        """The rooms where the run holds devices, and how many; devices that are gone are in none."""
        counts: dict[int, int] = {}
        for part in run.parts:
            for device in part.devices:
                room = self._by_device.get((part.node_id, device))
                if room is not None:
                    counts[room.order] = counts.get(room.order, 0) + 1
        return [(self.all[order], n_devices) for order, n_devices in counts.items()]

    def index(self, needs: Needs) -> Index:
        found = self._indexes.get(needs)
        if found is None:
            found = self._indexes[needs] = Index(needs, self.all)
        return found

    def indexes(self) -> dict[Needs, Index]:
        return self._indexes
