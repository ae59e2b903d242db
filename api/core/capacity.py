"""How much memory the nodes have for a job: a device of theirs, and their host. Reads rows, knows no job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.core.specs import ResourceSpec
from api.core.tables import Device, Node


@dataclass(frozen=True)
class Room:
    """What one node has for a job of so many processes; null: not known."""

    node: str
    device_bytes: int | None
    """Of the smallest of the devices it would get; of a CPU slot its share of the host's memory."""
    host_bytes: int | None


def rooms(session: Session, kind: Literal["cpu", "cuda"], n_devices: int, wanted: ResourceSpec) -> list[Room]:
    """Nodes that have `n_devices` as wanted, busy or not; all that have any where none has so many."""
    query = (
        select(Node.name, Node.labels, Node.facts, Device.memory_bytes)
        .join(Device, Device.node_id == Node.id)
        .where(Device.kind == kind, Device.is_present.is_(True))
        .order_by(Node.name)
    )
    found: dict[str, tuple[int | None, list[int | None]]] = {}
    for name, labels, facts, memory in session.execute(query):
        if not wanted.labels.items() <= labels.items() or (memory or 0) < (wanted.min_memory_bytes or 0):
            continue
        host = facts.get("memory_bytes")
        found.setdefault(name, (host if isinstance(host, int) else None, []))[1].append(memory)
    large = {name: facts for name, facts in found.items() if len(facts[1]) >= n_devices}
    return [
        Room(name, _device_bytes(kind, host, devices, n_devices), host)
        for name, (host, devices) in (large or found).items()
    ]


def _device_bytes(kind: str, host: int | None, devices: list[int | None], n_devices: int) -> int | None:
    if kind == "cpu":
        return None if host is None else host // len(devices)
    known = sorted((size for size in devices if size is not None), reverse=True)
    if len(known) < len(devices):
        return None
    return known[min(n_devices, len(known)) - 1]
