"""The Celery tasks: each reads the truth from the database, so that a lost or doubled message changes nothing."""

from __future__ import annotations

from celery import Celery

from api.core import queue
from worker.node import Node


def add_tasks(app: Celery, node: Node) -> None:
    """Register the tasks as work of this node."""

    @app.task(name=queue.SCHEDULE)
    def schedule() -> None:
        node.schedule()

    @app.task(name=queue.PREFLIGHT)
    def preflight(job_id: str) -> None:
        node.preflight(job_id)

    @app.task(name=queue.TAKE_PLACEMENTS)
    def take_placements(_node_name: str) -> None:
        node.agent.look()

    @app.task(name=queue.STOP)
    def stop(attempt_id: str) -> None:
        node.agent.ask_now(attempt_id)
