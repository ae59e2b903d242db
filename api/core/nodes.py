"""Nodes and their devices: registered by their agents, beaten alive, listed for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import case, or_, select, update
from sqlalchemy.orm import Session

from api.core.clean import clean_json
from api.core.db import now
from api.core.errors import NotFound
from api.core.ids import new_id
from api.core.states import AttemptState, NodeState
from api.core.tables import Attempt, Device, Node
from api.core.upserts import insert_missing
from trainer_core.contract import Frozen


class DeviceFact(Frozen):
    """One device as the node's agent found it."""

    index: int
    kind: Literal["cpu", "cuda"]
    name: str
    uuid: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node with its devices; `job_ids` says which job holds which device index."""

    node: Node
    devices: list[Device]
    job_ids: dict[int, str] = field(default_factory=dict)

    @property
    def n_free(self) -> int:
        return sum(one.is_present and not one.attempt_id and not one.engine_id for one in self.devices)


def register(
    session: Session,
    name: str,
    devices: Sequence[DeviceFact],
    facts: dict[str, Any],
    labels: dict[str, Any],
    *,
    at: datetime | None = None,
) -> Node:
    """Makes the node known, or brings what is known of it up to date; its agent calls it at every start.

    A device that is gone stays as a row that no placement uses; what runs on the others is not touched.
    """
    instant = at or now()
    fresh = {"id": new_id("node"), "name": name, "state": NodeState.READY.value, "labels": {}, "facts": {}}
    insert_missing(session, Node, [{**fresh, "beat_at": instant, "created_at": instant}])
    node = session.scalars(
        select(Node).where(Node.name == name).with_for_update().execution_options(populate_existing=True)
    ).one()
    node.state = node.hold or NodeState.READY.value
    node.beat_at = instant
    node.labels = clean_json(labels)
    node.facts = clean_json(facts)
    session.flush()
    _bring_devices(session, node.id, devices)
    return node


def _bring_devices(session: Session, node_id: str, found: Sequence[DeviceFact]) -> None:
    found = sorted(found, key=lambda fact: fact.index)  # one order of locks for everybody
    rows = [{"node_id": node_id, "is_present": True, **fact.model_dump()} for fact in found]
    insert_missing(session, Device, rows)
    for fact in found:
        _update_device(session, node_id, [fact.index], is_present=True, **fact.model_dump(exclude={"index"}))
    known = session.scalars(select(Device.index).where(Device.node_id == node_id)).all()
    _update_device(session, node_id, sorted(set(known) - {fact.index for fact in found}), is_present=False)


def _update_device(session: Session, node_id: str, indexes: Sequence[int], **values: Any) -> None:
    session.execute(
        update(Device)
        .where(Device.node_id == node_id, Device.index.in_(indexes))
        .values(**values)
        .execution_options(synchronize_session=False)
    )


def beat(session: Session, node_id: str, facts: dict[str, Any] | None = None, *, at: datetime | None = None) -> None:
    """The agent's sign of life; `facts` are merged into what is known. Raises NotFound: register again then."""
    node = session.get(Node, node_id, with_for_update=True, populate_existing=True)
    if node is None:
        raise NotFound(f"there is no node {node_id!r}; register it again")
    node.beat_at = at or now()
    node.state = node.hold or NodeState.READY.value
    if facts:
        node.facts = {**node.facts, **clean_json(facts)}
    session.flush()


def listing(session: Session) -> list[NodeView]:
    """Every node with its devices and what holds them, by name."""
    return _views(session, session.scalars(select(Node).order_by(Node.name)).all())


def view(session: Session, node: Node) -> NodeView:
    """One node as it is now."""
    session.refresh(node)
    return _views(session, [node])[0]


def _views(session: Session, nodes: Sequence[Node]) -> list[NodeView]:
    devices: dict[str, list[Device]] = {node.id: [] for node in nodes}
    job_ids: dict[str, dict[int, str]] = {node.id: {} for node in nodes}
    query = (
        select(Device, Attempt.job_id)
        .outerjoin(Attempt, Attempt.id == Device.attempt_id)
        .order_by(Device.node_id, Device.index)
    )
    if len(nodes) == 1:
        query = query.where(Device.node_id == nodes[0].id)
    for device, job_id in session.execute(query):
        if device.node_id in devices:
            devices[device.node_id].append(device)
            if job_id is not None:
                job_ids[device.node_id][device.index] = job_id
    return [NodeView(node, devices[node.id], job_ids[node.id]) for node in nodes]


def find(session: Session, name_or_id: str) -> Node:
    """The node, locked. Raises NotFound."""
    query = select(Node).where(or_(Node.name == name_or_id, Node.id == name_or_id)).with_for_update()
    node = session.scalars(query.execution_options(populate_existing=True)).first()
    if node is None:
        raise NotFound("there is no such node")
    return node


def hold(session: Session, node: Node, state: Literal[NodeState.DRAINING, NodeState.CORDONED]) -> None:
    """Keeps placements off the node from now on, whatever becomes of what runs on it. Doing it twice is fine.

    A drain of a node that is empty is over at once; a cordoned node may be drained, and the other way round.
    """
    node.hold = state.value
    if node.state != NodeState.UNREACHABLE:
        node.state = state.value
    session.flush()
    settle_drains(session)
    session.refresh(node)


def release(session: Session, node: Node) -> None:
    """The node takes work again as soon as it answers."""
    if node.hold is not None and node.state == node.hold:
        node.state = NodeState.READY.value
    node.hold = None
    session.flush()


def runs_on(session: Session, node_id: str) -> list[tuple[str, str]]:
    """(job id, attempt id) of what holds devices of the node, oldest first."""
    query = (
        select(Attempt.job_id, Attempt.id)
        .where(Attempt.node_id == node_id, Attempt.state != AttemptState.ENDED.value)
        .order_by(Attempt.placed_at, Attempt.id)
    )
    return [(row[0], row[1]) for row in session.execute(query)]


def settle_drains(session: Session) -> None:
    """A draining node that nothing runs on any more is held empty from then on: cordoned."""
    busy = select(Attempt.node_id).where(Attempt.state != AttemptState.ENDED.value)
    drained = [Node.hold == NodeState.DRAINING.value, Node.id.not_in(busy)]
    session.execute(
        update(Node)
        .where(*drained)
        .values(
            hold=NodeState.CORDONED.value,
            state=case((Node.state == NodeState.DRAINING.value, NodeState.CORDONED.value), else_=Node.state),
        )
        .execution_options(synchronize_session=False)
    )
