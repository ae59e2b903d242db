"""Which strategy `auto` stands for: the fastest that fits the memory of the nodes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from api.core.capacity import Room
from trainer_core.memory.strategies import BY_SPEED, Load, Need, Strategy, needs
from trainer_core.problems import Problem

# CUDA's own context, the allocator's fragments and other processes take the rest.
USABLE = 0.9
GIB = 1024**3


@dataclass(frozen=True)
class Choice:
    strategy: Strategy
    notes: tuple[str, ...] = ()
    problem: Problem | None = None
    """Nothing fits, and the memory is certain: the job cannot run here."""


def choose(load: Load, rooms: Sequence[Room]) -> Choice:
    """The first of BY_SPEED that fits every node that may take the job, else the first that fits one of them.

    Where size or memory is not known it is plain data parallelism. A CPU slot has only a share of its host's memory,
    which no run is held to: there the most sparing strategy is taken with a warning.
    """
    found = needs(load, BY_SPEED)
    if load.device == "cpu":  # what is offloaded there stays in the same memory
        found = [need for need in found if need.strategy.offload == "none"]
    if load.needs_whole_weights:
        found = [need for need in found if need.strategy.stage != 3]
    known = [room for room in rooms if room.device_bytes is not None]
    if not found or not known or len(known) < len(rooms):
        return Choice(Strategy(None))
    for need in found:
        if all(fits(need, room) for room in known):
            return Choice(need.strategy, (_chosen(need, known),))
    for need in found:
        if names := [room.node for room in known if fits(need, room)]:
            only = f"It fits on {', '.join(names)} alone."
            return Choice(need.strategy, (f"{_chosen(need, known)} {only}",))
    least = min(found, key=lambda need: need.memory.device_bytes)
    if load.device == "cpu":
        return Choice(least.strategy, (f"{_chosen(least, known)} That is more than there is: it may run out of it.",))
    return Choice(least.strategy, problem=_too_large(found, known))


def fits(need: Need, room: Room) -> bool:
    """Whether a node's devices hold it, and its host what is offloaded to it; on CPU devices both are one memory."""
    if room.device_bytes is None or need.memory.device_bytes > USABLE * room.device_bytes:
        return False
    is_moved = need.strategy.offload != "none" and room.host_bytes is not None
    return not is_moved or need.memory.host_bytes <= USABLE * (room.host_bytes or 0)


def fits_everywhere(need: Need, rooms: Sequence[Room]) -> bool | None:
    """Null where a node's memory, or every node, is unknown."""
    if not rooms or any(room.device_bytes is None for room in rooms):
        return None
    return all(fits(need, room) for room in rooms)


def in_gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB // 10 else f"{size / 1024**2:.1f} MiB"


def smallest(rooms: Sequence[Room]) -> int | None:
    """Memory of a device of the smallest node."""
    sizes = [room.device_bytes for room in rooms if room.device_bytes is not None]
    return min(sizes) if sizes and len(sizes) == len(rooms) else None


def _chosen(need: Need, rooms: Sequence[Room]) -> str:
    there = in_gib(min(room.device_bytes or 0 for room in rooms))
    needed = f"{in_gib(need.memory.device_bytes)} of the {there} a device has{_on_host(need)}"
    return f"parallel.strategy auto is {need.strategy}: an estimated {needed}."


def _on_host(need: Need) -> str:
    return "" if need.strategy.offload == "none" else f", and {in_gib(need.memory.host_bytes)} on its host"


def _too_large(found: Sequence[Need], rooms: Sequence[Room]) -> Problem:
    largest = max(room.device_bytes or 0 for room in rooms)
    listed = "; ".join(f"{need.strategy} {in_gib(need.memory.device_bytes)}{_on_host(need)}" for need in found)
    message = f"no strategy fits the largest device here, of {in_gib(largest)}; estimated are: {listed}"
    hint = "Use an adapter, a shorter dataset.max_length, gradient_checkpointing, a smaller batch or more processes."
    return Problem("parallel.strategy", message, "out_of_range", hint, "'auto'")
