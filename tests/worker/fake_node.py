"""`python fake_node.py run|celery [VISIBILITY_S]`: a node's processes as they are, around the fake trainer."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from api.core import queue
from api.core.db import Database
from api.core.settings import Settings
from api.core.storage import make_storage
from tests.worker.world import FAKE_TRAINER, fake_argv
from worker import app
from worker.agent import Agent
from worker.engines import EngineHost
from worker.exports import ExportRunner
from worker.node import Node, serve
from worker.preflight import Preflighter


def fake_node(settings: Settings) -> Node:
    db, storage = Database(settings.database), make_storage(settings)
    launchers = {"torchrun": fake_argv, "deepspeed": fake_argv}
    preflighter = Preflighter(db, storage, settings, (sys.executable, str(FAKE_TRAINER), "preflight"))
    agent = Agent(db, storage, settings, launchers)
    return Node(
        db, settings, agent, preflighter, ExportRunner(db, storage, settings), EngineHost(db, storage, settings)
    )


def main(command: str, visibility_s: float | None = None) -> None:
    logging.basicConfig(level="INFO", stream=sys.stderr)
    settings = Settings()
    if command == "run":
        serve("run", fake_node(settings), settings, [sys.executable, __file__, "celery"])
        return
    make = queue.make_celery

    def with_short_visibility(settings: Settings) -> object:
        celery = make(settings)
        if visibility_s is not None:
            celery.conf.broker_transport_options = {"visibility_timeout": visibility_s}
        return celery

    app.make_celery = with_short_visibility
    app.serve(fake_node(settings), settings)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else None)
