"""What a service at work takes from a run beside it, in windows of one run: in turn it works, or all of it is halted.

Two whole runs minutes apart differ by more than the service costs on a machine whose neighbours come and go; windows
of a few seconds see the same neighbours. What waited while the service was halted is shipped in the window after.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from tests.bench.service import Service, service, wait_for
from tests.bench.training import BATCH, job
from trainer_core.contract import RunFolder
from trainyard.errors import JobFailed

N_PAIRS = 16
WINDOW_S = 5.0
STEPS = 5000  # more than there is time for: the run is cancelled after the last window
OURS = re.compile(r"-m (worker|api|trainyard) ")


def beside() -> list[dict[str, Any]]:
    """Mean step with the service at work over mean step with it halted, a ratio for each pair of windows."""
    rows = []
    for n_processes in (1, 2):
        ratios = _ratios(n_processes)
        what = f"a step on {n_processes} of {os.cpu_count()} cores, service at work / halted"
        rows.append({"what": f"{what}: pairs of windows", "values": ratios, "unit": "ratio"})
        rows.append(
            {
                "what": f"{what}: their mean, and its standard error either side",
                "values": _mean_and_error(ratios),
                "unit": "ratio",
                "aim": "1.01",
            }
        )
    return rows


def _mean_and_error(ratios: list[float]) -> list[float]:
    mean = statistics.mean(ratios)
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    return [mean - error, mean, mean + error]


def _ratios(n_processes: int) -> list[float]:
    with service() as running:
        made = running.client.submit(job(running.dataset, STEPS, BATCH, n_processes))
        events = RunFolder(running.data_dir / "runs" / str(made["id"]) / "attempt-1").events
        wait_for(lambda: events.exists() and len(_instants(events)) > 20)
        windows = [(_window(), _halted_window(running)) for _ in range(N_PAIRS)]
        instants = _instants(events)
        running.client.cancel(made["id"])
        with suppress(JobFailed):  # cancelled, which is no success
            running.client.wait(made["id"], timeout_s=60)
    return [_mean_step(instants, *at_work) / _mean_step(instants, *halted) for at_work, halted in windows]


def _window() -> tuple[float, float]:
    began = time.time()
    time.sleep(WINDOW_S)
    return began, time.time()


def _halted_window(running: Service) -> tuple[float, float]:
    with _halted(str(running.data_dir)):
        return _window()


@contextmanager
def _halted(data_dir: str) -> Iterator[None]:
    ours = [process for process in psutil.process_iter() if _is_ours(process, data_dir)]
    assert len(ours) >= 4, ours  # up, API, worker and supervisor at the least
    for process in ours:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in ours:
            process.send_signal(signal.SIGCONT)


def _is_ours(process: psutil.Process, data_dir: str) -> bool:
    try:
        command = " ".join(process.cmdline())
        return bool(OURS.search(command)) and data_dir in " ".join((command, *process.environ().values()))
    except psutil.Error:
        return False


def _instants(events: Path) -> list[float]:
    """When each step was recorded, as Unix time."""
    lines = events.read_bytes().splitlines(keepends=True)
    records = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return [datetime.fromisoformat(record["at"]).timestamp() for record in records if record["type"] == "metrics"]


def _mean_step(instants: list[float], began: float, ended: float) -> float:
    """Seconds a step, over the steps that lie in the window whole."""
    return statistics.mean(later - at for at, later in pairwise(instants) if began <= at and later <= ended)
