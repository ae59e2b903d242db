"""`python -m worker run`: what a node needs in one process, each part a loop that survives its errors.

The Celery worker is a child, started again when it dies. Runs are nobody's child here: they outlive all of this.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType

from api.core import scheduling
from api.core.db import Database
from api.core.settings import Settings
from api.core.storage import make_storage
from worker.agent import Agent
from worker.detach import environ_of
from worker.engines import EngineHost
from worker.exports import ExportRunner
from worker.patience import Pace
from worker.preflight import Preflighter
from worker.webhooks import WebhookSender

log = logging.getLogger(__name__)

# SIGTERM ends everything here within this time; nothing that is under way is lost by it.
LEAVE_WITHIN_S = 2.0
CELERY = [sys.executable, "-P", "-m", "worker", "celery"]
# Somebody waits for the first word of an engine.
ENGINES_EVERY_S = 0.5
# Preflights at once in one process: each may hold a tokenizer and all its rows.
MAX_PREFLIGHTS = 2


class Node:
    """The work of a node, as the loops and the Celery tasks call it. Everything may be called twice at once."""

    def __init__(
        self,
        db: Database,
        settings: Settings,
        agent: Agent,
        preflighter: Preflighter,
        export_runner: ExportRunner,
        engine_host: EngineHost,
    ) -> None:
        self.agent = agent
        self.engine_host = engine_host
        self.export_runner = export_runner
        self.webhooks = WebhookSender(db, settings)
        self._db = db
        self._settings = settings
        self._preflighter = preflighter
        self._room = threading.BoundedSemaphore(MAX_PREFLIGHTS)

    def schedule(self) -> int:
        """One look of the scheduler; what was placed here is launched at once, without waiting for a message."""
        # All processes of a machine lead together: what they do is guarded row by row.
        n_placed = scheduling.run_once(self._db, self._settings.node_name, self._settings)
        if n_placed:
            self.agent.look()
        return n_placed

    def preflight(self, job_id: str | None = None) -> bool:
        """Preflight one job and place what can be placed then; False where nothing was to be done."""
        if not self._room.acquire(blocking=False):
            return False  # found by the next look
        try:
            is_done = self._preflighter.run_one(job_id) is not None
        finally:
            self._room.release()
        if is_done:
            self.schedule()
        return is_done


@dataclass
class Loops:
    """Threads that run until `stop` is set."""

    stop: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def add(self, name: str, step: Callable[[], object], every_s: float) -> None:
        thread = threading.Thread(target=self._loop, args=(name, step, every_s), name=name, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _loop(self, name: str, step: Callable[[], object], every_s: float) -> None:
        pace = Pace(every_s)
        while not self.stop.is_set():
            try:
                step()
            except Exception:  # one pass ends here; the next begins anew from what the database says
                log.exception("%s failed, tried again in a while", name)
                self.stop.wait(pace.failed(0.0))
            else:
                pace.worked(0.0)
                self.stop.wait(every_s)


class CeleryChild:
    """Keeps one Celery worker process going."""

    def __init__(self, settings: Settings, argv: Sequence[str]) -> None:
        self._settings = settings
        self._argv = argv
        self._child: subprocess.Popen[bytes] | None = None

    def keep(self) -> None:
        if self._child is not None and self._child.poll() is None:
            return
        if self._child is not None:
            log.warning("the Celery worker ended with %s and is started again", self._child.returncode)
        env = environ_of(self._settings, os.environ)
        self._child = subprocess.Popen(self._argv, env=env, stdin=subprocess.DEVNULL)

    def end(self) -> None:
        if self._child is not None and self._child.poll() is None:
            # It holds nothing: its tasks are looks at the database, and a preflight dies with it and is done again.
            self._child.kill()
            self._child.wait()


def make_node(settings: Settings) -> Node:
    db, storage = Database(settings.database), make_storage(settings)
    return Node(
        db,
        settings,
        Agent(db, storage, settings),
        Preflighter(db, storage, settings),
        ExportRunner(db, storage, settings),
        EngineHost(db, storage, settings),
    )


def main(options: argparse.Namespace, settings: Settings) -> int:
    serve(options.command, make_node(settings), settings, CELERY)
    return 0


def serve(command: str, node: Node, settings: Settings, celery_argv: Sequence[str]) -> None:
    """Be the `command` part of this node until SIGTERM or SIGINT. Runs are left alone."""
    loops, celery = Loops(), CeleryChild(settings, celery_argv)

    def leave(_number: int, _frame: FrameType | None) -> None:
        loops.stop.set()

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    if command in ("run", "agent"):
        loops.add("beat", node.agent.beat, settings.beat_every_s)
        loops.add("agent", node.agent.look, settings.look_every_s)
        # One at a time: an export may hold a whole model in memory.
        loops.add("exports", node.export_runner.run_one, settings.look_every_s)
        loops.add("engines", node.engine_host.look, min(settings.look_every_s, ENGINES_EVERY_S))
    if command in ("run", "scheduler"):
        loops.add("scheduler", node.schedule, settings.look_every_s)
        loops.add("webhooks", node.webhooks.look, settings.look_every_s)
    if command == "run":
        loops.add("preflight", lambda: _all_waiting(node, loops.stop), settings.look_every_s)
        loops.add("celery", celery.keep, settings.look_every_s)
    while not loops.stop.wait(1.0):
        pass
    node.engine_host.end_all()
    leave_by = time.monotonic() + LEAVE_WITHIN_S
    for thread in loops.threads:
        thread.join(max(0.0, leave_by - time.monotonic()))
    celery.end()


def _all_waiting(node: Node, stop: threading.Event) -> None:
    while not stop.is_set() and node.preflight():
        pass
