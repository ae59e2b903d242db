"""The machines that train: their devices and what holds them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter

from api.core import nodes
from api.core.auth import Actor, Permission
from api.core.nodes import NodeView
from api.deps import ReadSession, allow
from api.schemas import DeviceOut, NodeOut, Page, refusals

router = APIRouter(prefix="/v1/nodes", tags=["nodes"])


@router.get("", summary="List nodes", responses=refusals())
def list_nodes(session: ReadSession, _actor: Annotated[Actor, allow(Permission.NODES_READ)]) -> Page[NodeOut]:
    """Every node, by name, with its devices; one page holds them all."""
    return Page(data=[_out(view) for view in nodes.listing(session)], has_more=False, next=None)


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
        labels=node.labels,
        facts=node.facts,
        devices=devices,
        beat_at=node.beat_at,
        created_at=node.created_at,
    )
