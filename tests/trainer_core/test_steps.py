"""The planned steps are the Trainer's own, and a plan of no step is refused with the numbers."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, Dataset, SequentialSampler
from transformers import Trainer, TrainingArguments

from trainer_core.problems import OptionsInvalid
from trainer_core.steps import StepPlan, batches_per_process, plan_steps


def plan(n_rows: int, **changes: Any) -> StepPlan:
    facts: dict[str, Any] = {
        "n_processes": 1, "per_device_batch": 1, "accumulation": 1, "epochs": 1, "max_steps": None, "drop_last": False,
        "warmup": 0,
    }  # fmt: skip
    return plan_steps(n_rows, **(facts | changes))


@pytest.mark.parametrize(
    ("n_rows", "changes", "steps_per_epoch", "total"),
    [
        (20, {"per_device_batch": 8}, 3, 3),
        (5, {"accumulation": 2}, 3, 3),
        (8, {"per_device_batch": 4, "accumulation": 64}, 1, 1),
        (8, {"per_device_batch": 4, "accumulation": 64, "epochs": 3}, 1, 3),
        (3, {"per_device_batch": 4}, 1, 1),
        (10, {"n_processes": 2, "per_device_batch": 2}, 3, 3),
        (10, {"n_processes": 2, "per_device_batch": 2, "drop_last": True}, 2, 2),
        (10, {"epochs": 0.25}, 10, 3),
        (10, {"epochs": 9, "max_steps": 4}, 10, 4),
        (10, {"epochs": 2, "max_steps": -1}, 10, 20),
    ],
)
def test_steps_are_counted(n_rows: int, changes: dict[str, Any], steps_per_epoch: int, total: int) -> None:
    found = plan(n_rows, **changes)
    assert (found.steps_per_epoch, found.total_steps) == (steps_per_epoch, total)
    assert found.n_epochs == total / steps_per_epoch


@pytest.mark.parametrize(
    ("n_rows", "changes", "param", "number"),
    [
        (3, {"per_device_batch": 4, "drop_last": True}, "training.dataloader_drop_last", "3 rows"),
        (7, {"per_device_batch": 4, "n_processes": 2, "drop_last": True}, "training.dataloader_drop_last", "8 rows"),
        (0, {}, "dataset.train", "no row"),
        (5, {"epochs": 0}, "training.num_train_epochs", "5 rows"),
        (5, {"epochs": -1}, "training.num_train_epochs", "5 rows"),
        (5, {"max_steps": 0}, "training.max_steps", "5 rows"),
        (5, {"max_steps": -5}, "training.max_steps", "5 rows"),
        (4, {"warmup": 1000}, "training.warmup_steps", "the run has 4"),
    ],
)
def test_a_run_that_would_do_nothing_is_refused(n_rows: int, changes: dict[str, Any], param: str, number: str) -> None:
    with pytest.raises(OptionsInvalid) as caught:
        plan(n_rows, **changes)
    [problem] = caught.value.problems
    assert problem.param == param
    assert number in problem.message
    assert problem.hint


@pytest.mark.parametrize(("warmup", "steps"), [(0, 0), (0.03, 1), (0.5, 5), (1, 1), (10, 10)])
def test_warmup_is_the_trainer_s(warmup: float, steps: int) -> None:
    arguments = TrainingArguments(output_dir="unused", use_cpu=True, report_to=[], warmup_steps=warmup)
    assert plan(10, warmup=warmup).warmup_steps == arguments.get_warmup_steps(10) == steps


def test_notes_tell_of_rows_left_out_and_seen_twice() -> None:
    assert any("leaves out 2 of 10" in note for note in plan(10, per_device_batch=4, drop_last=True).notes)
    assert any("2 of the first rows" in n for n in plan(10, n_processes=2, per_device_batch=3).notes)
    assert any("sums 1 batches instead of 2" in note for note in plan(5, accumulation=2).notes)
    assert any("each step sums 2" in note for note in plan(8, per_device_batch=4, accumulation=64).notes)
    assert plan(8, per_device_batch=4, accumulation=2).notes == []
    assert any("nothing is learnt" in note for note in plan(1, warmup=0.03).notes)
    assert any("never reached" in note for note in plan(4, warmup=4).notes)


@given(st.integers(1, 200), st.integers(1, 9), st.integers(1, 17), st.booleans())
def test_batches_a_process_are_accelerate_s(n_rows: int, n_processes: int, batch: int, drop_last: bool) -> None:
    sampler = BatchSampler(SequentialSampler(range(n_rows)), batch, drop_last)
    shards = [BatchSamplerShard(sampler, n_processes, rank, even_batches=True) for rank in range(n_processes)]
    ours = batches_per_process(n_rows, n_processes, batch, drop_last=drop_last)
    assert {len(shard) for shard in shards} == {ours}
    assert {len(list(shard)) for shard in shards} == {ours}


class Rows(Dataset[dict[str, torch.Tensor]]):
    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.tensor([float(index)])}


class Line(torch.nn.Module):
    """One weight; counts nothing itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor, **_unused: Any) -> dict[str, torch.Tensor]:
        return {"loss": (self.weight * x).mean()}


COMBINATIONS = list(
    itertools.product([1, 3, 7, 16], [1, 4], [1, 2, 5], [(0.5, -1), (1.0, -1), (2.3, -1), (1.0, 3)], [False, True])
)


def trainer_of(
    n_rows: int, batch: int, accumulation: int, length: tuple[float, int], drop: bool, home: Path
) -> Trainer:
    epochs, max_steps = length
    arguments = TrainingArguments(
        output_dir=str(home), use_cpu=True, report_to=[], per_device_train_batch_size=batch, disable_tqdm=True,
        gradient_accumulation_steps=accumulation, num_train_epochs=epochs, max_steps=max_steps, save_strategy="no",
        dataloader_drop_last=drop, remove_unused_columns=False, logging_strategy="no",
    )  # fmt: skip
    return Trainer(model=Line(), args=arguments, train_dataset=Rows(n_rows))


def plan_of(n_rows: int, batch: int, accumulation: int, length: tuple[float, int], drop: bool) -> StepPlan:
    epochs, max_steps = length
    return plan(
        n_rows, per_device_batch=batch, accumulation=accumulation, epochs=epochs, max_steps=max_steps, drop_last=drop
    )


def test_the_plan_is_what_a_real_trainer_counts(tmp_path: Path) -> None:
    compared = 0
    for n_rows, batch, accumulation, length, drop in COMBINATIONS:
        if drop and n_rows < batch:
            with pytest.raises(OptionsInvalid):
                plan_of(n_rows, batch, accumulation, length, drop)
            continue
        trainer = trainer_of(n_rows, batch, accumulation, length, drop, tmp_path)
        ours = plan_of(n_rows, batch, accumulation, length, drop)
        theirs = trainer.set_initial_training_values(trainer.args, trainer.get_train_dataloader())
        assert (ours.steps_per_epoch, ours.global_batch, ours.total_steps) == (theirs[1], theirs[4], theirs[6])
        assert math.ceil(ours.n_epochs) == theirs[0]
        compared += 1
    assert compared > 150


@pytest.mark.train
@pytest.mark.parametrize(
    ("n_rows", "batch", "accumulation", "length", "drop"),
    [
        (7, 4, 5, (2.3, -1), False),
        (7, 2, 2, (0.5, -1), False),
        (16, 4, 3, (1.0, -1), True),
        (3, 1, 2, (1.0, 5), False),
        (1, 4, 2, (2.0, -1), False),
    ],
)
def test_a_real_run_takes_the_planned_steps(
    n_rows: int, batch: int, accumulation: int, length: tuple[float, int], drop: bool, tmp_path: Path
) -> None:
    trainer = trainer_of(n_rows, batch, accumulation, length, drop, tmp_path)
    assert trainer.train().global_step == plan_of(n_rows, batch, accumulation, length, drop).total_steps
