"""Nodes and devices that a job keeps away from, because it failed there twice. `choose` is pure.

Nothing is excluded where the job could then be placed nowhere: trying a doubtful node again is better than waiting for
ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.core.causes import Outcome, cause_of
from api.core.policy import OF_A_DEVICE, Fault, fault_of
from api.core.states import AttemptState
from api.core.tables import Attempt, Device, Job, Node

TWICE = 2


def after_fault(session: Session, job: Job, node_id: str) -> list[dict[str, Any]]:
    """What the job keeps away from, now that another attempt was ended by a fault of this node."""
    ended = select(Attempt).where(
        Attempt.job_id == job.id, Attempt.node_id == node_id, Attempt.state == AttemptState.ENDED.value
    )
    failed: list[Collection[int]] = []
    may_be_a_device = True
    for attempt in session.scalars(ended):
        cause = cause_of(Outcome.model_validate(attempt.outcome))
        if fault_of(cause.code) is not Fault.NODE:
            continue
        failed.append(attempt.devices)
        may_be_a_device = may_be_a_device and cause.code in OF_A_DEVICE
    if len(failed) < TWICE:
        return list(job.excluded)
    return choose(node_id, failed if may_be_a_device else [], _devices(session), job.excluded, job.n_devices)


def choose(
    node_id: str,
    failed: Sequence[Collection[int]],
    nodes: Mapping[str, Collection[int]],
    excluded: Sequence[Mapping[str, Any]],
    n_devices: int,
) -> list[dict[str, Any]]:
    """`excluded` and the devices that all the failed attempts had in common, else the node, as far as the job can spare
    them. `failed` are the devices of each such attempt, empty where no device can be at fault."""
    before = [dict(each) for each in excluded]
    common = set.intersection(*map(set, failed)) if failed else set()
    if common and common < set(nodes.get(node_id, ())):
        devices = [{"node_id": node_id, "device": index} for index in sorted(common)]
        narrowed = before + [each for each in devices if each not in before]
        if _fits(nodes, narrowed, n_devices):
            return narrowed
    whole = {"node_id": node_id, "device": None}
    widened = before if whole in before else [*before, whole]
    return widened if _fits(nodes, widened, n_devices) else before


def _fits(nodes: Mapping[str, Collection[int]], excluded: Sequence[Mapping[str, Any]], n_devices: int) -> bool:
    shut = {(each["node_id"], each["device"]) for each in excluded}
    return any(
        (node_id, None) not in shut and sum((node_id, index) not in shut for index in indexes) >= n_devices
        for node_id, indexes in nodes.items()
    )


def _devices(session: Session) -> dict[str, set[int]]:
    """Devices of the nodes that take work; one that is silent for the moment may come back."""
    query = (
        select(Device.node_id, Device.index)
        .join(Node, Node.id == Device.node_id)
        .where(Device.is_present.is_(True), Node.hold.is_(None))
    )
    found: dict[str, set[int]] = {}
    for node_id, index in session.execute(query):
        found.setdefault(node_id, set()).add(index)
    return found


def words(added: Sequence[Mapping[str, Any]], node_name: str) -> str:
    """`device 1 of gpu-7`, `gpu-7`: what is kept away from since now."""
    devices = [str(each["device"]) for each in added if each["device"] is not None]
    if not devices:
        return node_name
    return f"{'device' if len(devices) == 1 else 'devices'} {', '.join(devices)} of {node_name}"
