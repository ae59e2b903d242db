"""The table against the installed release: no name missing, and every accepted value really is accepted there."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Seq2SeqTrainingArguments, TrainingArguments
from transformers import optimization as schedules
from transformers.optimization import TYPE_TO_SCHEDULER_FUNCTION, GreedyLR
from transformers.trainer_utils import SchedulerType
from transformers.training_args import OptimizerNames

from trainer_core.arguments.read import known_names
from trainer_core.arguments.resolve import resolve
from trainer_core.arguments.table import (
    ACCEPTED,
    CHECKPOINTING_KEYS,
    EVALUATION_SCHEDULERS,
    NEEDED_SCHEDULER_KEYS,
    OPTIMIZERS,
    SCHEDULERS,
)

EXAMPLES: dict[str, list[Any]] = {
    "learning_rate": ["1e-4", 3], "num_train_epochs": [0.5, "3"], "max_steps": [7, -1], "warmup_steps": [0, 0.5, 1, 9],
    "optim_args": [], "optim_target_modules": [], "lr_scheduler_kwargs": [{"num_cycles": 2}, '{"num_cycles": "0.5"}'],
    "activation_checkpointing_kwargs": [{"use_reentrant": False}], "liger_kernel_config": [],
    "logging_steps": [1, 0.1, 5], "eval_steps": [1, 0.1, 5], "save_steps": [1, 0.1, 5], "ddp_timeout": [600],
    "adam_epsilon": [1e-6], "neftune_noise_alpha": [5],
    "dataloader_prefetch_factor": [2],
}  # fmt: skip
COMPANIONS = {
    "dataloader_prefetch_factor": {"dataloader_num_workers": 1},
    "dataloader_persistent_workers": {"dataloader_num_workers": 1},
    "dataloader_multiprocessing_context": {"dataloader_num_workers": 1},
    "activation_checkpointing_kwargs": {"activation_checkpointing": True},
    "torch_compile_backend": {"torch_compile": True},
    "torch_compile_mode": {"torch_compile": True},
    "save_strategy": {"eval_strategy": None},
}
SCHEDULE_COMPANIONS: dict[str, dict[str, Any]] = {
    "cosine_with_min_lr": {"min_lr": 1e-6}, "cosine_warmup_with_min_lr": {"min_lr_rate": 0.1},
    "warmup_stable_decay": {"num_decay_steps": 2},
}  # fmt: skip


def examples(name: str) -> list[Any]:
    option = ACCEPTED[name]
    if name in EXAMPLES:
        return EXAMPLES[name]
    if option.kind == "bool":
        return [True, False]
    if option.kind == "choice":
        return [choice for choice in option.choices if name != "optim" or OPTIMIZERS[choice] is None]
    return [option.at_least if option.at_least is not None else 1]


def accepted() -> list[tuple[str, Any]]:
    pairs = [(name, value) for name in ACCEPTED for value in examples(name)]
    return [(n, v) for n, v in pairs if not (ACCEPTED[n].only == "cuda" and v is not False)]


def build(tmp_path: Path, values: dict[str, Any]) -> TrainingArguments:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[], **values)


def test_every_name_of_the_release_has_an_answer() -> None:
    names = {field.name for cls in (TrainingArguments, Seq2SeqTrainingArguments) for field in dataclasses.fields(cls)}
    assert len(names) > 110
    assert names - known_names() == set()


def test_every_accepted_name_is_one_of_the_release() -> None:
    assert set(ACCEPTED) - {field.name for field in dataclasses.fields(TrainingArguments)} == set()


def test_optimizers_and_schedules_are_the_release_s() -> None:
    assert set(OPTIMIZERS) == {optimizer.value for optimizer in OptimizerNames}
    assert set(SCHEDULERS) == {schedule.value for schedule in SchedulerType}


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
def test_keys_of_a_schedule_are_the_release_s(name: str) -> None:
    source: Any = TYPE_TO_SCHEDULER_FUNCTION[SchedulerType(name)]
    if name == "greedy":
        source = GreedyLR.__init__
    elif name == "reduce_lr_on_plateau":
        source = torch.optim.lr_scheduler.ReduceLROnPlateau.__init__
    own = {"self", "optimizer", "num_warmup_steps", "num_training_steps", "last_epoch", "kwargs"}
    assert SCHEDULERS[name] == set(inspect.signature(source).parameters) - own


@pytest.mark.parametrize("name", sorted(set(SCHEDULERS) - EVALUATION_SCHEDULERS))
def test_every_schedule_runs_with_its_defaults(name: str) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
    kwargs = SCHEDULE_COMPANIONS.get(name)
    assert (name in NEEDED_SCHEDULER_KEYS) == (kwargs is not None)
    schedule = schedules.get_scheduler(name, optimizer, 1, 10, scheduler_specific_kwargs=kwargs)
    optimizer.step()
    schedule.step()
    assert schedule.get_last_lr()[0] > 0


def test_checkpointing_keys_are_torch_s() -> None:
    named = set(inspect.signature(torch.utils.checkpoint.checkpoint).parameters)
    assert named | {"preserve_rng_state"} >= CHECKPOINTING_KEYS  # that one travels among its keyword arguments


@pytest.mark.parametrize(("name", "value"), accepted(), ids=lambda part: str(part)[:30])
def test_accepted_values_are_accepted_by_the_release(name: str, value: Any, tmp_path: Path) -> None:
    training = {name: value, **COMPANIONS.get(name, {})}
    if name == "lr_scheduler_type" and value in SCHEDULE_COMPANIONS:
        training["lr_scheduler_kwargs"] = SCHEDULE_COMPANIONS[value]
    resolved = resolve(training, has_eval=True, device="cpu", adapter=True, strategy="ddp")
    arguments = build(tmp_path, resolved.values)
    if name in resolved.values and name != "dataloader_pin_memory":
        kept = getattr(arguments, name)
        assert getattr(kept, "value", kept) == resolved.values[name]


@pytest.mark.parametrize(
    "training",
    [{}, {"eval_steps": 2, "save_steps": 3}, {"eval_steps": 0.02, "save_steps": 0.1}, {"save_strategy": "best"},
     {"eval_strategy": "epoch"}, {"eval_strategy": "no"},
     {"load_best_model_at_end": True, "save_steps": 3, "eval_steps": 2}],
)  # fmt: skip
@pytest.mark.parametrize("has_eval", [True, False])
def test_every_cadence_that_is_accepted_builds(training: dict[str, Any], has_eval: bool, tmp_path: Path) -> None:
    if not has_eval:
        training = {name: value for name, value in training.items() if name != "eval_strategy"}
    resolved = resolve(training, has_eval=has_eval, device="cpu", adapter=False, strategy="deepspeed")
    arguments = build(tmp_path, resolved.values)
    assert arguments.save_strategy.value in ("steps", "epoch")
    assert arguments.load_best_model_at_end is False
