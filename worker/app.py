"""The Celery application of a node, and its worker process: threads, because no task here computes anything."""

from __future__ import annotations

import argparse

from api.core.queue import CONTROL_QUEUE, make_celery, node_queue
from api.core.settings import Settings
from worker.node import Node, make_node
from worker.tasks import add_tasks

# Nudges are short; a few preflights may wait for their processes beside them.
N_THREADS = 4


def main(_options: argparse.Namespace, settings: Settings) -> int:
    serve(make_node(settings), settings)
    return 0


def serve(node: Node, settings: Settings) -> None:
    """Be this node's Celery worker until a signal ends it.

    Every message is acknowledged at once and none is held for a run: what it asks for is in the database.
    """
    app = make_celery(settings)
    add_tasks(app, node)
    queues = f"{CONTROL_QUEUE},{node_queue(settings.node_name)}"
    app.worker_main(
        [
            *("worker", "--pool", "threads", "--concurrency", str(N_THREADS), "--queues", queues),
            *("--loglevel", settings.log_level, "--hostname", f"{settings.node_name}@%h"),
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        ]
    )
