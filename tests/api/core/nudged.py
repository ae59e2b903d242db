"""A Celery worker for tests, run as a program: writes down each nudge it gets, a line each.

Usage: python -m tests.api.core.nudged OUTPUT_FILE QUEUE[,QUEUE]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from api.core import queue
from api.core.settings import Settings


def main(output: Path, queues: str) -> None:
    app = queue.make_celery(Settings())
    for name in (queue.SCHEDULE, queue.PREFLIGHT, queue.TAKE_PLACEMENTS, queue.STOP):
        app.task(_task(name, output), name=name)
    app.worker_main(["worker", "--pool=solo", f"--queues={queues}", "--without-gossip", "--without-mingle"])


def _task(name: str, output: Path) -> Callable[..., None]:
    def note(*args: str) -> None:
        with output.open("a") as file:
            file.write(json.dumps([name, *args]) + "\n")

    return note


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
