"""The same run on CUDA devices: every strategy trains, says what it ran on, and gives the losses of one device.

Needs at least one GPU; with two or more the runs use two ranks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tiny import make_tiny
from trainer_core.contract import RunFolder, parse_record

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="NOT RUN: no CUDA device on this machine"),
]

STEPS = 6
ROWS = [
    {"messages": [{"role": "user", "content": f"Say {n}."}, {"role": "assistant", "content": f"{n} it is."}]}
    for n in range(48)
]


def run(folder: Path, model: Path, n_processes: int, **changes: Any) -> list[Any]:
    """The records of one run under torchrun."""
    folder.mkdir(parents=True)
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    training = {
        "max_steps": STEPS,
        "logging_steps": 1,
        "per_device_train_batch_size": 4 // n_processes,
        "save_steps": STEPS,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 1.0,
        "bf16": True,
        **changes.pop("training", {}),
    }
    config = {
        "job_id": "job", "job_name": "gpu", "attempt": 1, "device": "cuda",
        "model": {"name": "tiny", "source": str(model)},
        "data": {"train": str(rows), "format": "messages", "max_length": 128},
        "training": training, "metric_for_best": "loss",
        **changes,
    }  # fmt: skip
    RunFolder(folder).config.write_text(json.dumps(config))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n_processes}"]
    command += ["-m", "trainer_core", "run", str(folder)]
    repository = Path(__file__).resolve().parents[2]
    subprocess.run(command, check=True, cwd=repository, env={**os.environ, "TOKENIZERS_PARALLELISM": "false"})
    return [parse_record(line) for line in RunFolder(folder).events.read_text().splitlines()]


def losses(records: list[Any]) -> list[float]:
    return [record.values["loss"] for record in records if record.type == "metrics"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, model: Path) -> list[float]:
    return losses(run(tmp_path_factory.mktemp("reference") / "run", model, 1))


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("adapter", [None, {"type": "lora", "r": 4}], ids=["full", "lora"])
def test_each_zero_stage_trains_on_cuda(
    tmp_path: Path, model: Path, reference: list[float], stage: int, adapter: dict[str, Any] | None
) -> None:
    n_processes = min(2, torch.cuda.device_count())
    parallel = {"strategy": "deepspeed", "zero_stage": stage, "n_processes": n_processes}
    records = run(tmp_path / "run", model, n_processes, parallel=parallel, adapter=adapter)
    plan = next(record for record in records if record.type == "plan")
    assert (plan.wrapped_model, plan.zero_stage, plan.precision) == ("DeepSpeedEngine", stage, "bf16")
    assert records[-1].type == "done"
    if adapter is None:
        assert losses(records) == pytest.approx(reference, abs=5e-2)  # bf16 on the GPU


def test_plain_run_reports_device_memory(tmp_path: Path, model: Path) -> None:
    records = run(tmp_path / "run", model, 1)
    started = next(record for record in records if record.type == "started")
    assert started.device == "cuda"
    newest = [record for record in records if record.type == "metrics"][-1]
    assert newest.values["memory_bytes"] > 0
