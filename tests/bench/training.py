"""What the service costs a run: wall time of its steps, and the time from POST to the first optimizer step.

Each pair is one job through the service and the same run folder under bare torchrun, in turn.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.bench.service import Service, run_bare, service, serving
from trainer_core.contract import RunFolder

PAIRS = 5
STEPS = 200
# Rows a process for a step of more than a tenth of a second on the tiny model: a small model on a GPU takes as long.
BATCH = 64
N_PROCESSES = 2
THREADS = 1


def job(dataset: str, steps: int, batch: int = 2, n_processes: int = N_PROCESSES) -> dict[str, Any]:
    return {
        "model": "tiny",
        "dataset": {"train": dataset, "max_length": 128},
        "adapter": {"type": "lora"},
        "training": {"max_steps": steps, "per_device_train_batch_size": batch, "logging_steps": 1, "save_steps": steps},
        "parallel": {"n_processes": n_processes, "strategy": "ddp"},
    }


def overhead() -> list[dict[str, Any]]:
    """Seconds from the first to the last step's record, service over bare; and bare over bare, which is the noise.

    One process leaves a core to the service, as a machine with GPUs does; two on two cores show what every cycle
    of the service takes from a run.
    """
    return [row for n_processes in (1, 2) for row in _overhead(n_processes)]


def _overhead(n_processes: int) -> list[dict[str, Any]]:
    ratios, noise = [], []
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as scratch:
        kept = _through_alone(Path(scratch), n_processes)  # its config is what the bare runs get
        for _ in range(PAIRS):
            # Bare on both sides, so that a machine that warms up or tires favours neither.
            before = _bare(kept, n_processes)
            through = _seconds(_through_alone(Path(scratch), n_processes))
            after = _bare(kept, n_processes)
            ratios.append(through / statistics.mean((before, after)))
            noise.append(after / before)
    runs = f"{STEPS} steps on {n_processes} of {os.cpu_count()} cores"
    aim = {"aim": "1.01"} if n_processes < (os.cpu_count() or 1) else {}
    return [
        {"what": f"{runs}, service / bare torchrun", "values": ratios, "unit": "ratio", **aim},
        {"what": f"{runs}, bare / bare (noise)", "values": noise, "unit": "ratio"},
    ]


def _through_alone(scratch: Path, n_processes: int) -> Path:
    """The run folder of a job on a service that is there for this one job: no service is up beside a bare run."""
    with serving(scratch) as running:
        return _through(running, STEPS, BATCH, n_processes, look_every_s=2.0)


def first_step() -> list[dict[str, Any]]:
    """POST to the first step through the service; start to first step under bare torchrun; the difference."""
    posts, bares = [], []
    with service() as running:
        for _ in range(PAIRS):
            posted = time.time()
            folder = _through(running, 2)
            posts.append(_between(folder)[1] - posted)
            bare = _copy(folder)
            started = time.time()
            run_bare(bare, N_PROCESSES, THREADS)
            bares.append(_between(bare)[1] - started)
    more = [post - bare for post, bare in zip(posts, bares, strict=True)]
    return [
        {"what": "POST to first step, through the service", "values": posts, "unit": "s"},
        {"what": "start to first step, bare torchrun", "values": bares, "unit": "s"},
        {"what": "the service's share", "values": more, "unit": "s", "aim": "2"},
    ]


def _bare(first: Path, n_processes: int) -> float:
    folder = _copy(first)
    run_bare(folder, n_processes, THREADS)
    return _seconds(folder)


def _seconds(folder: Path) -> float:
    return _between(folder)[0]


def _through(
    running: Service, steps: int, batch: int = 2, n_processes: int = N_PROCESSES, look_every_s: float = 0.1
) -> Path:
    """A job through the service; its run folder once it has succeeded."""
    made = running.client.submit(job(running.dataset, steps, batch, n_processes))
    running.client.wait(made["id"], every_s=look_every_s, timeout_s=300)
    return running.data_dir / "runs" / str(made["id"]) / "attempt-1"


def _copy(folder: Path) -> Path:
    """A fresh run folder with the same config."""
    fresh = Path(tempfile.mkdtemp(prefix="bare-", dir=folder.parent))
    shutil.copy(RunFolder(folder).config, RunFolder(fresh).config)
    return fresh


def _between(folder: Path) -> tuple[float, float]:
    """(seconds between first and last step's record, instant of the first as Unix time)."""
    records = [json.loads(line) for line in RunFolder(folder).events.read_text().splitlines()]
    steps = [datetime.fromisoformat(record["at"]).timestamp() for record in records if record["type"] == "metrics"]
    return steps[-1] - steps[0], steps[0]
