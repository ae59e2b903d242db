"""Runs that learn nothing and evaluations that say nothing are ended or told of."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments

from trainer_core.contract import CauseCode
from trainer_core.run.events import EventWriter
from trainer_core.run.faults import Fault
from trainer_core.run.flat import MAX_FLAT, Flat, Unsaid

pytestmark = pytest.mark.train


@pytest.fixture
def events(tmp_path: Path) -> EventWriter:
    return EventWriter(tmp_path / "events.jsonl")


def notes(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]


def log(flat: Flat, tmp_path: Path, loss: float, grad_norm: float, rate: float = 1e-3) -> None:
    args = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[])
    logs = {"loss": loss, "grad_norm": grad_norm, "learning_rate": rate}
    flat.on_log(args, TrainerState(global_step=7), TrainerControl(), logs=logs)


def test_no_gradient_and_a_loss_that_never_moves_end_the_run(events: EventWriter, tmp_path: Path) -> None:
    flat = Flat(events)
    for _ in range(MAX_FLAT - 1):
        log(flat, tmp_path, 2.5, 0.0)
    with pytest.raises(Fault) as raised:
        log(flat, tmp_path, 2.5, 0.0)
    assert raised.value.cause.code is CauseCode.LOSS_FLAT


def test_a_loss_that_moves_or_a_rate_of_zero_begins_the_count_anew(events: EventWriter, tmp_path: Path) -> None:
    flat = Flat(events)
    for number in range(3 * MAX_FLAT):
        log(flat, tmp_path, 2.5 if number % (MAX_FLAT - 1) else 2.25, 0.0)
    for _ in range(2 * MAX_FLAT):
        log(flat, tmp_path, 1.0, 0.0, rate=0.0)
    assert notes(tmp_path) == []


def test_the_same_loss_with_a_gradient_is_told_of_once(events: EventWriter, tmp_path: Path) -> None:
    flat = Flat(events)
    for _ in range(3 * MAX_FLAT):
        log(flat, tmp_path, 2.5, 0.1)
    (note,) = notes(tmp_path)
    assert (note["level"], note["data"]) == ("warning", {"cause": "loss_flat"})


def test_a_loss_of_zero_may_be_the_end_of_learning(events: EventWriter, tmp_path: Path) -> None:
    flat = Flat(events)
    for _ in range(2 * MAX_FLAT):
        log(flat, tmp_path, 0.0, 0.0)
    assert len(notes(tmp_path)) == 1


def test_an_evaluation_without_a_finite_figure_is_told_of_once(events: EventWriter, tmp_path: Path) -> None:
    unsaid = Unsaid(events)
    unsaid.look({"eval_loss": 1.0, "eval_runtime": 2.0}, 1)
    assert notes(tmp_path) == []
    for step in (2, 3):
        unsaid.look({"eval_loss": math.nan, "eval_runtime": 2.0, "eval_samples_per_second": 4.0}, step)
    (note,) = notes(tmp_path)
    assert note["level"] == "error"
    assert "step 2" in note["message"]
