"""The machines that train: their devices, what holds them, and taking one out of work."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query
from sqlalchemy.orm import Session

from api.core import nodes, queue, wishes
from api.core.auth import Actor, Permission
from api.core.nodes import NodeView
from api.core.states import NodeState
from api.core.tables import Node
from api.deps import ReadSession, SettingsDep, WriteSession, after_commit, allow
from api.schemas import DeviceOut, NodeOut, Page, refusals

router = APIRouter(prefix="/v1/nodes", tags=["nodes"])

NodeName = Annotated[str, Path(description="The node's name or id.", max_length=200)]
Operator = Annotated[Actor, allow(Permission.ADMIN)]


@router.get("", summary="List nodes", responses=refusals())
def list_nodes(session: ReadSession, _actor: Annotated[Actor, allow(Permission.NODES_READ)]) -> Page[NodeOut]:
    """Every node, by name, with its devices; one page holds them all."""
    return Page(data=[_out(view) for view in nodes.listing(session)], has_more=False, next=None)


@router.post("/{node}/drain", summary="Drain a node", responses=refusals(404))
def drain_node(
    node: NodeName,
    session: WriteSession,
    settings: SettingsDep,
    actor: Operator,
    stop: Annotated[bool, Query(description="Have its runs leave at a checkpoint; they are queued again.")] = False,
) -> NodeOut:
    """It is given no further work. Once what runs there has ended, or left, it is `cordoned`: held empty."""
    found = nodes.find(session, node)
    running = nodes.runs_on(session, found.id)
    nodes.hold(session, found, NodeState.DRAINING)
    if stop:
        for job_id, attempt_id in running:
            if wishes.request_leave(session, job_id, "drain", f"{found.name} is drained", actor.name):
                after_commit(session, partial(queue.nudge_stop, found.name, attempt_id, settings))
        nodes.settle_drains(session)
    return _one(session, found)


@router.post("/{node}/cordon", summary="Give a node no further work", responses=refusals(404))
def cordon_node(node: NodeName, session: WriteSession, _actor: Operator) -> NodeOut:
    """What runs there goes on to its end."""
    found = nodes.find(session, node)
    nodes.hold(session, found, NodeState.CORDONED)
    return _one(session, found)


@router.post("/{node}/uncordon", summary="Give a node work again", responses=refusals(404))
def uncordon_node(node: NodeName, session: WriteSession, settings: SettingsDep, _actor: Operator) -> NodeOut:
    """Ends a drain or a cordon. Runs that were asked to leave still do."""
    found = nodes.find(session, node)
    nodes.release(session, found)
    after_commit(session, partial(queue.nudge_schedule, settings))
    return _one(session, found)


def _one(session: Session, node: Node) -> NodeOut:
    return _out(nodes.view(session, node))


def _out(view: NodeView) -> NodeOut:
    node = view.node
    devices = [
        DeviceOut(
            index=device.index,
            kind=device.kind,
            name=device.name,
            memory_bytes=device.memory_bytes,
            is_present=device.is_present,
            job_id=view.job_ids.get(device.index),
        )
        for device in view.devices
    ]
    return NodeOut(
        id=node.id,
        name=node.name,
        state=node.state,
        hold=node.hold,
        labels=node.labels,
        facts=node.facts,
        devices=devices,
        beat_at=node.beat_at,
        created_at=node.created_at,
    )
