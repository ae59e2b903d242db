"""`python -m worker run|agent|scheduler|celery|nudge|supervise`: the processes of a node.

`run` is what a node needs, in one; the others are its parts. Each part is loaded by name, so that a supervisor, of
which there is one a run, holds no more in memory than it uses.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from pathlib import Path

from api.core.settings import get_settings

PROGRAMS = {
    "run": "worker.node",
    "agent": "worker.node",
    "scheduler": "worker.node",
    "celery": "worker.app",
    "nudge": "worker.nudge",
    "supervise": "worker.supervision",
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m worker", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="agent, scheduler and Celery worker")
    commands.add_parser("agent", help="launches and adopts the runs of this machine")
    commands.add_parser("scheduler", help="places jobs on nodes; one of them leads")
    commands.add_parser("celery", help="answers nudges and preflights jobs")
    commands.add_parser("nudge", help="asks the scheduler to look now")
    supervise = commands.add_parser("supervise", help="follows one run to its end")
    supervise.add_argument("attempt_id")
    supervise.add_argument("--run-dir", type=Path, help="default: where the database says it is")
    supervise.add_argument("--lock-fd", type=int, help="the folder's lock, held already by who starts this")
    options = parser.parse_args(argv)
    settings = get_settings()
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    return int(importlib.import_module(PROGRAMS[options.command]).main(options, settings))


if __name__ == "__main__":
    sys.exit(main())
