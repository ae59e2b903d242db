"""`python -m trainer_core.outputs.plots OUTPUT_DIR`: draws training_loss.png from trainer_log.jsonl, and
confusion_matrix.png where there is a confusion_matrix.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

matplotlib.use("Agg")

MOST_NUMBERED = 20
"""Classes up to which every cell has its count written in it."""


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


def draw_confusion(output: Path) -> Path:
    """Rows are true classes, columns predicted ones; with several labels a row, one line of counts a label."""
    found = json.loads((output / "confusion_matrix.json").read_text(encoding="utf-8"))
    names, matrix, columns = found["labels"], found["matrix"], found["labels"]
    if found["problem"] == "multi_label":
        columns = ["right no", "false yes", "missed yes", "right yes"]
        matrix = [[*one[0], *one[1]] for one in matrix]
    size = min(4 + 0.3 * max(len(names), len(columns)), 40)
    figure = Figure(figsize=(size, size * 0.85), layout="constrained")
    axes = figure.add_subplot(title="Confusion matrix of the last evaluation", xlabel="predicted", ylabel="true")
    figure.colorbar(axes.imshow(matrix, cmap="Blues", aspect="auto"), ax=axes)
    axes.set_xticks(range(len(columns)), [_short(name) for name in columns], rotation=90)
    axes.set_yticks(range(len(names)), [_short(name) for name in names])
    if len(names) <= MOST_NUMBERED:
        top = max(max(row) for row in matrix)
        for y, row in enumerate(matrix):
            for x, count in enumerate(row):
                axes.text(x, y, count, ha="center", va="center", color="white" if count > top / 2 else "black")
    path = output / "confusion_matrix.png"
    figure.savefig(path, dpi=120)
    return path


def _short(name: str) -> str:
    # A dollar sign would begin a formula.
    return (name if len(name) <= 24 else f"{name[:23]}\u2026").replace("$", r"\$")


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    draw(folder)
    if (folder / "confusion_matrix.json").exists():
        draw_confusion(folder)
