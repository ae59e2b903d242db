"""`make bench-scheduler`: CPU seconds to read and plan a long queue on many nodes, by its length. A benchmark, no test.

Half of the devices are held, some by runs that may be preempted; the jobs are of several sizes, priorities, projects
and needs. "read" is from an SQLite file with real rows, "explain" is what a reader of the queue waits for at worst.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table
from sqlalchemy import insert

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from api.core import queue_rows
from api.core.db import Database
from api.core.planning.forecast import starts
from api.core.planning.model import FreeNode, Part, Policy, Running, Usage, Waiting
from api.core.planning.plan import Planner
from api.core.planning.reasons import standings_of
from api.core.schema import upgrade_url
from api.core.states import State
from api.core.tables import Job

T = TypeVar("T")
LENGTHS = (1_000, 3_000, 10_000, 30_000, 100_000)
N_NODES, N_DEVICES = 1_000, 8
T0 = datetime(2026, 1, 1, tzinfo=UTC)
GIB = 1024**3
NEEDS: list[dict[str, Any]] = [
    {},
    {"device": "cuda"},
    {"device": "cuda", "min_memory_bytes": 60 * GIB},
    {"labels": {"zone": "a"}},
]
RESULTS = Path(__file__).resolve().parents[2] / "bench-results"


def rows(n_jobs: int) -> Iterator[dict[str, Any]]:
    for number in range(n_jobs):
        yield {
            "id": f"job_{number:08}",
            "name": "a job",
            "state": State.QUEUED.value,
            "method": "sft",
            "model_name": "tiny",
            "spec": {"training": {"learning_rate": 1e-4}},
            "resolved": {"notes": ["a resolved configuration is a few kilobytes"] * 20},
            "created_by": f"key_{number % 50}",
            "created_at": T0,
            "queued_at": T0 + timedelta(seconds=number * 7919 % n_jobs),
            "n_devices": (1, 1, 2, 4, 8)[number % 5],
            "priority": number % 3,
            "project": f"project{number % 17}",
            "constraints": NEEDS[number % 4],
            "time_limit_s": (None, 600, 3600)[number % 3],
        }


def cluster() -> tuple[list[FreeNode], list[Running]]:
    nodes, running = [], []
    for number in range(N_NODES):
        name, devices, n_held = f"node{number:04}", tuple(range(N_DEVICES)), number % (N_DEVICES + 1)
        labels = frozenset({("zone", "ab"[number % 2])})
        memory = (80 if number % 2 else 40) * GIB
        nodes.append(FreeNode(name, name, devices[n_held:], devices, "cuda", memory, labels))
        running += [_run(name, number, device) for device in range(n_held)]
    return nodes, running


def _run(node: str, number: int, device: int) -> Running:
    left_s = None if device % 3 else 500.0 * device
    return Running(
        f"run{number:04}-{device}",
        (Part(node, (device,)),),
        device % 3 - 1,
        f"project{device}",
        f"key_{device}",
        is_preemptible=device % 2 == 0,
        left_s=left_s,
        lost_s=10.0 * device,
    )


def timed(call: Callable[[], T]) -> tuple[T, float]:
    began = time.process_time()
    return call(), time.process_time() - began


class Filled:
    """A database with a queue that grows."""

    def __init__(self, folder: str) -> None:
        url = f"sqlite:///{folder}/bench.db"
        upgrade_url(url)
        self.database = Database(url)
        self._rows = rows(LENGTHS[-1])
        self._n_jobs = 0

    def read(self, n_jobs: int) -> tuple[list[Waiting], float]:
        """The queue of that length, and how long reading it took."""
        with self.database.session() as session:
            while self._n_jobs < n_jobs:
                batch = list(itertools.islice(self._rows, min(5_000, n_jobs - self._n_jobs)))
                session.execute(insert(Job), batch)
                self._n_jobs += len(batch)
        with self.database.reading() as session:
            return timed(lambda: queue_rows.waiting_jobs(session, T0 + timedelta(days=9)))


def measure(filled: Filled, n_jobs: int) -> dict[str, float]:
    waiting, read_s = filled.read(n_jobs)
    nodes, running = cluster()
    policy = Policy(typical_run_s=1800.0)
    planner, prepare_s = timed(lambda: Planner(waiting, nodes, running, Usage(), policy))
    plan, plan_s = timed(planner.run)
    _, explain_s = timed(lambda: standings_of(plan, starts(plan, planner.rooms, policy)))
    return {
        "jobs": n_jobs,
        "read_s": read_s,
        "plan_s": prepare_s + plan_s,
        "explain_s": explain_s,
        "placed": len(plan.placements),
    }


def main() -> None:
    table = Table("waiting jobs", "read", "plan", "explain", "all, us a job", "placed")
    with tempfile.TemporaryDirectory() as folder:
        filled = Filled(folder)
        found = [measure(filled, n_jobs) for n_jobs in LENGTHS]
        filled.database.close()
    for row in found:
        whole_s = row["read_s"] + row["plan_s"] + row["explain_s"]
        times = [f"{row[name]:.3f} s" for name in ("read_s", "plan_s", "explain_s")]
        table.add_row(f"{row['jobs']:,}", *times, f"{whole_s / row['jobs'] * 1e6:.1f}", str(row["placed"]))
    Console(width=100).print(f"{N_NODES:,} nodes of {N_DEVICES} devices, half of them held")
    Console(width=100).print(table)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "scheduler.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
