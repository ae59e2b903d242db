"""The files of a finished run in output/: results, state, plot and model card. Strict JSON throughout."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer_core.contract import RunConfig, RunFolder
from trainer_core.run.events import EventWriter, finite_or_word

PLOT_PATIENCE_S = 120


def write_results(
    folder: RunFolder, state: Mapping[str, Any], train: Mapping[str, Any], final_eval: Mapping[str, Any]
) -> None:
    """train_results, eval_results (where there was an evaluation), all_results and trainer_state, each as .json."""
    _write(folder.output / "train_results.json", train)
    if final_eval:
        _write(folder.output / "eval_results.json", final_eval)
    _write(folder.output / "all_results.json", {**train, **final_eval})
    _write(folder.output / "trainer_state.json", state)


def plot_losses(folder: RunFolder, events: EventWriter) -> None:
    """training_loss.png, and confusion_matrix.png for a classifier, drawn by a process of its own: matplotlib takes a
    second to import and a plot may fail."""
    command = [sys.executable, "-m", "trainer_core.outputs.plots", str(folder.output)]
    try:
        subprocess.run(command, check=True, timeout=PLOT_PATIENCE_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        events.note(f"The pictures could not be drawn: {error}", level="warning")


def write_card(folder: RunFolder, card: str) -> None:
    (folder.output / "README.md").write_text(card, encoding="utf-8")


def resolved_config(config: RunConfig) -> dict[str, Any]:
    """The configuration as a reader of the card may see it: without this machine's paths."""
    return config.model_dump(
        mode="json", exclude={"data": {"train", "eval"}, "model": {"source"}, "resume": True}, exclude_none=True
    )


def _write(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(_strict(value), indent=2, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _strict(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, float) or hasattr(value, "item"):
        number = finite_or_word(value)
        return value if number is None else number
    return value
