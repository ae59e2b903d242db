"""`python -m trainer_core.plots OUTPUT_DIR`: draws training_loss.png from trainer_log.jsonl."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

matplotlib.use("Agg")


def draw(output: Path) -> Path:
    """Loss of the training steps and of the evaluations over steps; words (NaN, Infinity) leave a gap."""
    lines = [json.loads(line) for line in (output / "trainer_log.jsonl").read_text(encoding="utf-8").splitlines()]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel="loss", title="Training loss")
    for key, label, style in (("loss", "train", "-"), ("eval_loss", "eval", "o--")):
        points = [(line["step"], _number(line[key])) for line in lines if line[key] is not None]
        if points:
            axes.plot([step for step, _ in points], [loss for _, loss in points], style, label=label)
    if axes.lines:
        axes.legend()
    axes.grid(alpha=0.3)
    path = output / "training_loss.png"
    figure.savefig(path, dpi=120)
    return path


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
