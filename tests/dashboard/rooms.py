"""A small world for looking at every page: jobs of several states, curves, logs, a node, a dataset."""

from __future__ import annotations

from dataclasses import dataclass

from api.core.states import State
from tests.dashboard.filled import HOSTILE, Filled

PREFLIGHT = {
    "n_train_rows": 40, "n_eval_rows": 4, "n_rows_truncated": 0, "n_rows_dropped": 0, "planned_steps": 500,
    "steps_per_epoch": 5, "trained_tokens": 100, "total_tokens": 300, "memory_bytes_per_device": 2 * 10**9,
    "disk_bytes_per_checkpoint": 10**8, "notes": [HOSTILE],
    "histogram": {"edges": [0, 8, 16, 24], "counts": [3, 20, 5], "longest": 22, "mean": 12.2},
    "sample": [{"text": "Say", "learnt": False}, {"text": HOSTILE, "learnt": True}],
}  # fmt: skip


@dataclass(frozen=True)
class Rooms:
    dataset: str
    node: str
    done: str
    other: str
    failed: str
    queued: str

    @property
    def paths(self) -> dict[str, str]:
        return {
            "jobs": "/jobs",
            "job": f"/jobs/{self.done}",
            "diff": f"/jobs/{self.done}?against={self.other}",
            "failed": f"/jobs/{self.failed}",
            "compare": f"/compare?jobs={self.done},{self.other}",
            "compare-none": "/compare",
            "new": "/jobs/new?preset=trial",
            "clone": f"/jobs/new?clone={self.done}",
            "nodes": "/nodes",
            "datasets": "/datasets",
            "dataset": f"/datasets/{self.dataset}?after=20",
            "models": "/models",
            "try": "/try?model=tiny",
            "try-none": "/try",
            "settings": "/settings",
        }


def furnish(shelf: Filled) -> Rooms:
    dataset, node = shelf.add_dataset(), shelf.add_node()
    spec = {
        "model": "tiny",
        "dataset": {"train": dataset, "eval_fraction": 0.2, "max_length": 64},
        "adapter": {"type": "lora", "r": 4},
        "training": {"learning_rate": 0.001, "warmup_steps": 3},
        "parallel": {"n_processes": 2, "strategy": "ddp"},
        "continue_from": None,
    }
    done = shelf.add_job(
        HOSTILE, planned_steps=500, step=500, best_step=450, best_value=0.31, labels={"team": HOSTILE}, notes=HOSTILE,
        preflight=PREFLIGHT, spec=spec, finished_at=None,
    )  # fmt: skip
    resolved = {"metric_for_best": "eval_loss", "training": {"learning_rate": 5e-5}, "padding": "x" * 3000}
    other = shelf.add_job("slower", resolved=resolved, planned_steps=500, step=500, best_step=400, best_value=0.4)
    cause = {"code": "no_trainable_tokens", "message": HOSTILE, "hint": "raise it"}
    failed = shelf.add_job("broken", state=State.FAILED, cause=cause)
    queued = shelf.add_job("waiting", state=State.QUEUED)
    shelf.add_curve(done, 500, {30: 2.5, 200: "NaN"})
    shelf.add_curve(other, 500, scale=1.4)
    shelf.add_attempt(done, node)
    shelf.add_events(done, ["Created", HOSTILE, "Succeeded"])
    shelf.add_log(done, [_line(number) for number in range(3000)])
    return Rooms(dataset, node, done, other, failed, queued)


def _line(number: int) -> str:
    if number == 0:
        return "the very first line"
    if number % 50 == 0:
        return f"ERROR: number {number} went wrong"
    return f"UserWarning: number {number}" if number % 30 == 0 else f"{HOSTILE} {number}"
