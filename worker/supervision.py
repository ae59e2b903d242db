"""`python -m worker supervise`: the process around a `Supervisor`, from the folder's lock to the last nudge."""

from __future__ import annotations

import argparse
import fcntl
import logging
from pathlib import Path

from api.core.db import Database
from api.core.settings import Settings
from api.core.storage import make_storage
from api.core.tables import Attempt
from worker import folder as folders
from worker.detach import start_nudge
from worker.supervise import Supervisor

log = logging.getLogger(__name__)


def main(options: argparse.Namespace, settings: Settings) -> int:
    """0: the run came to its end here, or belongs to another supervisor; anything else: start one again."""
    db = Database(settings.database, pool_size=2)
    place = options.run_dir or _place_of(db, options.attempt_id)
    plan = folders.read_plan(place)
    if plan is None:
        log.error("%s holds no %s: its node's agent has yet to lay it out", place, folders.LAUNCH_FILE)
        return 1
    if options.lock_fd is not None:
        # Not for the launcher and its ranks, which may live longer than this process.
        fcntl.fcntl(options.lock_fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    elif folders.Lock.take(place) is None:
        log.info("another supervisor has %s", place)
        return 0
    outcome = Supervisor(db, make_storage(settings), settings, plan).run()
    folders.unmark_live(settings, plan.attempt_id)
    folders.tidy(plan)
    if outcome is not None:
        start_nudge(settings)
    db.close()
    return 0


def _place_of(db: Database, attempt_id: str) -> Path:
    with db.reading() as session:
        attempt = session.get(Attempt, attempt_id)
        if attempt is None or attempt.run_folder is None:
            raise SystemExit(f"there is no run folder for attempt {attempt_id}; give --run-dir")
        return Path(attempt.run_folder)
