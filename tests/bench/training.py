"""What the service costs a run: wall time of its steps, and the time from POST to the first optimizer step.

Each pair is one job through the service and the same run folder under bare torchrun, in turn.
"""

from __future__ import annotations

import json
import shutil
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.bench.service import Service, run_bare, service
from trainer_core.contract import RunFolder

PAIRS = 5
STEPS = 200
# Rows a process for a step of more than a tenth of a second on the tiny model: a small model on a GPU takes as long.
BATCH = 64
N_PROCESSES = 2
THREADS = 1


def job(dataset: str, steps: int, batch: int = 2) -> dict[str, Any]:
    return {
        "model": "tiny",
        "dataset": {"train": dataset, "max_length": 128},
        "adapter": {"type": "lora"},
        "training": {"max_steps": steps, "per_device_train_batch_size": batch, "logging_steps": 1, "save_steps": steps},
        "parallel": {"n_processes": N_PROCESSES, "strategy": "ddp"},
    }


def overhead() -> list[dict[str, Any]]:
    """Seconds from the first to the last step's record, service over bare."""
    pairs = [_pair() for _ in range(PAIRS)]
    ratios = [_between(through)[0] / _between(bare)[0] for through, bare in pairs]
    return [
        {
            "what": f"wall time of {STEPS} steps, service / bare torchrun",
            "values": ratios,
            "unit": "ratio",
            "aim": "1.01",
        }
    ]


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


def _pair() -> tuple[Path, Path]:
    with service() as running:
        through = _keep(_through(running, STEPS, BATCH))
        bare = _copy(through)
        run_bare(bare, N_PROCESSES, THREADS)
        return through, bare


def _through(running: Service, steps: int, batch: int = 2) -> Path:
    """A job through the service; its run folder once it has succeeded."""
    made = running.client.submit(job(running.dataset, steps, batch))
    running.client.wait(made["id"], every_s=0.1, timeout_s=180)
    return running.data_dir / "runs" / made["id"] / "attempt-1"


def _keep(folder: Path) -> Path:
    """A copy that outlives the service's folder: config and events are all that is compared."""
    kept = Path(f"/tmp/trainyard-bench-{folder.parent.name}-through")
    kept.mkdir()
    for name in (RunFolder(folder).config, RunFolder(folder).events):
        shutil.copy(name, kept / name.name)
    return kept


def _copy(folder: Path) -> Path:
    """A fresh run folder with the same config."""
    fresh = Path(f"/tmp/trainyard-bench-{time.time_ns()}-bare")
    fresh.mkdir()
    shutil.copy(RunFolder(folder).config, RunFolder(fresh).config)
    return fresh


def _between(folder: Path) -> tuple[float, float]:
    """(seconds between first and last step's record, instant of the first as Unix time)."""
    records = [json.loads(line) for line in RunFolder(folder).events.read_text().splitlines()]
    steps = [datetime.fromisoformat(record["at"]).timestamp() for record in records if record["type"] == "metrics"]
    return steps[-1] - steps[0], steps[0]
