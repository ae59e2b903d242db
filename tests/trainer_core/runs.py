"""Makes run folders for the tiny model and runs them: two real ranks from a warm pool, or a real launcher."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.tiny import make_tiny
from trainer_core.contract import MANIFEST_NAME, RunFolder

REPOSITORY = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]),
}


@dataclass
class Outcome:
    """How a run ended and what it said."""

    folder: RunFolder
    codes: list[int] = field(default_factory=list)

    @property
    def records(self) -> list[dict[str, Any]]:
        if not self.folder.events.exists():
            return []
        return [
            json.loads(line, parse_constant=refuse_constant)
            for line in self.folder.events.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        ]

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record["type"] == kind]

    def one(self, kind: str) -> dict[str, Any]:
        found = self.of_type(kind)
        assert len(found) == 1, f"{len(found)} {kind} records; the run ended with {self.records[-1:]} {self.codes}"
        return found[0]

    def series(self, name: str) -> dict[int, float]:
        """step -> value of the metrics records."""
        return {record["step"]: float(record["values"][name]) for record in self.of_type("metrics")}

    @property
    def eval_losses(self) -> dict[int, float]:
        return {record["step"]: float(record["values"]["eval_loss"]) for record in self.of_type("eval")}

    @property
    def checkpoints(self) -> list[int]:
        """Steps of the complete checkpoints on disk."""
        names = [path.parent.name for path in self.folder.checkpoints.glob(f"checkpoint-*/{MANIFEST_NAME}")]
        return sorted(int(name.removeprefix("checkpoint-")) for name in names)


def refuse_constant(word: str) -> None:
    raise AssertionError(f"not strict JSON: {word}")


class Workshop:
    """A folder with the tiny model, its rows, and the runs made from them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.model = make_tiny(root / "model")
        self.rows = root / "rows.jsonl"
        self.rows.write_text("".join(json.dumps(chat(i)) + "\n" for i in range(24)))
        self._pool: subprocess.Popen[str] | None = None
        self._shared: dict[str, Outcome] = {}

    def config(self, **parts: Any) -> dict[str, Any]:
        """16 rows to train and 8 to evaluate on, 6 steps of 8 rows, LoRA, 2 processes; `parts` on top, one level."""
        config: dict[str, Any] = {
            "job_id": "job-1",
            "job_name": "tiny",
            "attempt": 1,
            "model": {"name": "tiny", "source": str(self.model)},
            "data": {"train": str(self.rows), "format": "messages", "eval_fraction": 0.34, "max_length": 128},
            "adapter": {"r": 4, "target_modules": ["q_proj", "v_proj"]},
            "training": {
                "max_steps": 6,
                "per_device_train_batch_size": 2,
                "gradient_accumulation_steps": 2,
                "per_device_eval_batch_size": 4,
                "learning_rate": 1e-3,
                "logging_steps": 1,
                "save_strategy": "steps",
                "save_steps": 3,
                "eval_strategy": "steps",
                "eval_steps": 3,
            },
            "parallel": {"n_processes": 2, "strategy": "ddp"},
            "retention": {"n_best": 5, "n_last": 5},
        }
        for name, value in parts.items():
            merges = isinstance(value, Mapping) and isinstance(config.get(name), Mapping)
            config[name] = {**config[name], **value} if merges else value
        return config

    def folder(self, name: str, **parts: Any) -> RunFolder:
        folder = RunFolder(self.root / "runs" / name)
        folder.root.mkdir(parents=True)
        folder.config.write_text(json.dumps(self.config(**parts), default=str))
        return folder

    def run(self, name: str, env: Mapping[str, str] | None = None, **parts: Any) -> Outcome:
        """Make the folder and run it to its end on warm ranks."""
        return self.start(self.folder(name, **parts), env)

    def straight(self, kind: str, weights: str) -> Outcome:
        """The plain 6-step run that others are compared with, made once: "one", "ddp" or "zero0" to "zero3"."""
        name = f"{kind}-{weights}"
        if name not in self._shared:
            self._shared[name] = self.run(name, **setting(kind, weights))
        return self._shared[name]

    def start(self, folder: RunFolder, env: Mapping[str, str] | None = None) -> Outcome:
        n_ranks = json.loads(folder.config.read_text())["parallel"]["n_processes"]
        order = {"run_dir": str(folder.root), "n_ranks": n_ranks, "port": free_port(), "env": dict(env or {})}
        answer = self._ask(order)
        return Outcome(folder, answer["codes"])

    def start_in_background(self, folder: RunFolder) -> tuple[threading.Thread, Outcome]:
        """The same, on a thread; the outcome's codes are there once the thread has ended."""
        outcome = Outcome(folder)
        thread = threading.Thread(target=lambda: outcome.codes.extend(self.start(folder).codes))
        thread.start()
        return thread, outcome

    def close(self) -> None:
        if self._pool and self._pool.stdin:
            self._pool.stdin.close()
            self._pool.wait(timeout=60)
            assert self._pool.stdout
            self._pool.stdout.close()

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        if self._pool is None:
            self._pool = subprocess.Popen(
                [sys.executable, "-m", "tests.trainer_core.rank_pool"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=REPOSITORY,
                env=ENVIRONMENT,
            )
            self._answer()
        assert self._pool.stdin
        self._pool.stdin.write(json.dumps(order) + "\n")
        self._pool.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._pool
        assert self._pool.stdout
        line = self._pool.stdout.readline()
        assert line, "the pool of ranks ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


def setting(kind: str, weights: str) -> dict[str, Any]:
    """Configuration parts of a strategy (see `straight`) with "lora" or "full" weights, all with batches of 8 rows."""
    parts: dict[str, Any] = {} if weights == "lora" else {"adapter": None}
    if kind == "one":
        return parts | {"parallel": {"n_processes": 1}, "training": {"per_device_train_batch_size": 4}}
    if kind == "ddp":
        return parts
    return parts | {"parallel": {"strategy": "deepspeed", "zero_stage": int(kind.removeprefix("zero"))}}


def chat(i: int) -> dict[str, Any]:
    """Rows of very unequal length."""
    answer = f"It is {'so ' * (i * 5 % 13)}{i + i * 3 % 7}"
    return {
        "messages": [{"role": "user", "content": f"What is {i}+{i * 3 % 7}?"}, {"role": "assistant", "content": answer}]
    }


def resume_from(checkpoint: Path, mode: str = "full") -> dict[str, str]:
    """The `resume` part of a configuration, with the manifest's digest as a service would have recorded it."""
    digest = hashlib.sha256((checkpoint / MANIFEST_NAME).read_bytes()).hexdigest()
    return {"checkpoint": str(checkpoint), "manifest_sha256": digest, "mode": mode}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], patience_s: float = 60) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
