"""Training options: every name of every release has an answer, and what is accepted never dies later."""

from __future__ import annotations

import ast
import math
import re
from pathlib import Path
from typing import Any

import pytest

from trainer_core.arguments.gone import GENERATION, REFUSED, RENAMED
from trainer_core.arguments.read import known_names
from trainer_core.arguments.resolve import Resolved, resolve
from trainer_core.arguments.table import ACCEPTED, OPTIMIZERS, SCHEDULERS, TAKEN_OVER_HERE
from trainer_core.problems import OptionsInvalid, Problem

NUMBERS = [
    name for name, option in ACCEPTED.items() if option.kind in ("number", "whole", "cadence", "warmup", "max_steps")
]


def take(training: dict[str, Any], **changes: Any) -> Resolved:
    facts: dict[str, Any] = {"has_eval": True, "device": "cpu", "adapter": True, "strategy": "ddp"}
    return resolve(training, **(facts | changes))


def problems(training: dict[str, Any], **changes: Any) -> dict[str, Problem]:
    with pytest.raises(OptionsInvalid) as caught:
        take(training, **changes)
    return {problem.param.removeprefix("training."): problem for problem in caught.value.problems}


# Numbers


@pytest.mark.parametrize("value", ["nan", math.inf, float("1e400"), True, -1, 0, "1e400", "fast", [1e-4]])
def test_learning_rate_that_is_no_rate_is_refused(value: object) -> None:
    assert set(problems({"learning_rate": value})) == {"learning_rate"}


def test_text_numbers_are_stored_as_the_number_used() -> None:
    values = take({"learning_rate": "1e-4", "per_device_train_batch_size": "8", "max_steps": "20"}).values
    assert (values["learning_rate"], values["per_device_train_batch_size"], values["max_steps"]) == (1e-4, 8, 20)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [True, "nan", math.inf, -math.inf, "auto", -2, {}, "1e400"])
def test_no_number_takes_what_is_none(name: str, value: object) -> None:
    assert name in problems({name: value})


@pytest.mark.parametrize("value", [3.7, True, "1e3", 1000.0, 0])
def test_batch_size_is_a_whole_number(value: object) -> None:
    assert "per_device_train_batch_size" in problems({"per_device_train_batch_size": value})


@pytest.mark.parametrize(
    "training",
    [{"max_steps": 0}, {"max_steps": -5}, {"num_train_epochs": 0}, {"num_train_epochs": -1}, {"logging_steps": 0},
     {"max_steps": 4, "warmup_steps": 1000}, {"warmup_steps": -1}, {"warmup_ratio": 1.0}, {"save_steps": 2.5}],
)  # fmt: skip
def test_lengths_that_make_no_run_are_refused(training: dict[str, Any]) -> None:
    assert problems(training)


def test_all_problems_come_at_once() -> None:
    found = problems({"lerning_rate": 0.1, "max_steps": 0, "fp16": True, "optim": "adamw"})
    assert set(found) == {"lerning_rate", "max_steps", "fp16", "optim"}


# Names


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("lerning_rate", "learning_rate"),
        ("eval_stratgy", "eval_strategy"),
        ("batch_size", None),
        ("Learning_Rate", "learning_rate"),
    ],
)
def test_unknown_name_is_refused_with_the_nearest(name: str, near: str | None) -> None:
    problem = problems({name: 1})[name]
    assert problem.code == "unknown_key"
    if near:
        assert problem.hint == f"Did you mean `{near}`?"


@pytest.mark.parametrize("value", [None, 1])
def test_unknown_name_is_refused_even_when_null(value: object) -> None:
    assert "lerning_rate" in problems({"lerning_rate": value})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"evaluation_strategy": "epoch"}, {"eval_strategy": "epoch", "save_strategy": "epoch"}),
        ({"warmup_ratio": 0.1, "warmup_steps": 0}, {"warmup_steps": 0.1}),
        ({"warmup_ratio": 0.0, "warmup_steps": 7}, {"warmup_steps": 7}),
        ({"group_by_length": True}, {"train_sampling_strategy": "group_by_length"}),
        ({"group_by_length": False}, {"train_sampling_strategy": "random"}),
        ({"gradient_checkpointing": True}, {"activation_checkpointing": True}),
        ({"per_gpu_train_batch_size": 2}, {"per_device_train_batch_size": 2}),
        ({"adafactor": True}, {"optim": "adafactor"}),
        ({"optim": "adamw_hf"}, {"optim": "adamw_torch"}),
    ],
)
def test_older_names_act_under_the_release_s_name(old: dict[str, Any], new: dict[str, Any]) -> None:
    values = take(old).values
    assert {name: values[name] for name in new} == new
    assert not set(old) & set(RENAMED) & set(values)


def test_two_spellings_must_agree() -> None:
    assert problems({"evaluation_strategy": "no", "eval_strategy": "steps"})["eval_strategy"].code == "conflict"
    assert take({"evaluation_strategy": "epoch", "eval_strategy": "epoch"}).values["eval_strategy"] == "epoch"


@pytest.mark.parametrize(
    ("training", "word"),
    [({"push_to_hub": True}, "hub"), ({"hub_token": "hf_secret_value"}, "hub"), ({"report_to": "wandb"}, "trackers"),
     ({"deepspeed": "ds.json"}, "parallel.deepspeed"), ({"fsdp": "full_shard"}, "zero_stage"),
     ({"local_rank": 3}, "n_processes"),
     ({"auto_find_batch_size": True}, "planned steps"), ({"resume_from_checkpoint": "/x"}, "resumes"),
     ({"no_cuda": True}, "devices"), ({"save_only_model": True}, "resume"), ({"max_new_tokens": 5}, "generation"),
     ({"predict_with_generate": True}, "sequence"), ({"fp16_backend": "apex"}, "left the release")],
)  # fmt: skip
def test_what_the_service_owns_is_refused_with_its_owner(training: dict[str, Any], word: str) -> None:
    [(name, problem)] = problems(training, device="cuda").items()
    assert name in training
    assert word in problem.message
    assert "hf_secret_value" not in str(problem)


def test_harmless_values_of_a_dump_are_dropped() -> None:
    dumped = {
        "push_to_hub": False,
        "report_to": "none",
        "local_rank": 0,
        "no_cuda": False,
        "fsdp": [],
        "deepspeed": None,
    }
    resolved = take(dumped)
    assert resolved.notes == []
    assert not set(dumped) & set(resolved.values)
    assert take({"use_cpu": True}).notes == []


def test_promises_kept_another_way_are_said() -> None:
    notes = " ".join(
        take({"save_total_limit": 1, "load_best_model_at_end": True, "output_dir": "/x", "save_strategy": "no"}).notes
    )
    for name in ("save_total_limit", "load_best_model_at_end", "output_dir", "save_strategy"):
        assert name in notes


def test_seed_is_handed_to_the_job() -> None:
    resolved = take({"seed": "7", "data_seed": 3})
    assert resolved.seed == 7
    assert "seed" not in resolved.values
    assert resolved.values["data_seed"] == 3


# Evaluation, saving, best


@pytest.mark.parametrize(
    ("asked", "kept", "meet"),
    [
        ({"eval_steps": 2, "save_steps": 3}, (2, 3), False),
        ({"eval_steps": 0.02, "save_steps": 0.1}, (0.02, 0.1), False),
        ({"eval_steps": 0.1, "save_steps": 3}, (0.1, 3), False),
        ({"eval_steps": 5, "save_steps": 2}, (5, 2), False),
        ({"eval_steps": 2, "save_steps": 6}, (2, 6), True),
        ({"save_steps": 7}, (7, 7), True),
        ({"eval_steps": 7, "load_best_model_at_end": True}, (7, 7), True),
        ({"eval_strategy": "steps"}, (0.1, 0.1), True),
        ({}, (0.1, 0.1), True),
    ],
)
def test_cadences_are_kept_and_said_to_be_evaluated_at_each_save(
    asked: dict[str, Any], kept: tuple[float, float], meet: bool
) -> None:
    resolved = take(asked)
    assert (resolved.values["eval_steps"], resolved.values["save_steps"]) == kept
    assert any("evaluated when it is saved" in note for note in resolved.notes) is not meet


def test_epoch_and_steps_may_differ_and_it_is_said() -> None:
    resolved = take({"eval_strategy": "epoch", "save_strategy": "steps"})
    assert (resolved.values["eval_strategy"], resolved.values["save_steps"]) == ("epoch", 0.1)
    assert any("(epoch) and saving (0.1 steps)" in note for note in resolved.notes)
    assert take({"eval_strategy": "epoch"}).values["save_strategy"] == "epoch"
    assert take({"eval_strategy": "epoch", "save_steps": 9}).values["save_steps"] == 9
    assert take({"save_strategy": "epoch", "eval_steps": 9}).values["eval_steps"] == 9


def test_metric_must_be_one_that_is_computed() -> None:
    problem = problems({"metric_for_best_model": "f1"})["metric_for_best_model"]
    assert "eval_loss" in problem.message
    assert take({"metric_for_best_model": "loss"}).metric_for_best == "eval_loss"
    assert take({}).metric_for_best == "eval_loss"
    accuracy = take({"metric_for_best_model": "accuracy"}, available_metrics=("eval_loss", "eval_accuracy"))
    assert (accuracy.metric_for_best, accuracy.greater_is_better) == ("eval_accuracy", True)


@pytest.mark.parametrize("training", [{"eval_strategy": "steps"}, {"evaluation_strategy": "epoch"},
                                      {"eval_on_start": True}, {"metric_for_best_model": "eval_loss"}])  # fmt: skip
def test_evaluation_without_rows_is_refused(training: dict[str, Any]) -> None:
    assert set(problems(training, has_eval=False)) == set(training)


def test_without_eval_rows_the_training_loss_decides() -> None:
    resolved = take({}, has_eval=False)
    assert (resolved.metric_for_best, resolved.greater_is_better) == ("loss", False)
    assert resolved.values["eval_strategy"] == "no"
    assert take({"eval_strategy": "no"}).metric_for_best == "loss"


def test_steps_without_their_strategy_are_said() -> None:
    resolved = take({"eval_strategy": "epoch", "eval_steps": 5})
    assert "eval_steps" not in resolved.values
    assert any("eval_steps" in note for note in resolved.notes)


# Combinations


@pytest.mark.parametrize(
    ("training", "changes", "name"),
    [
        ({"fp16": True}, {}, "fp16"),
        ({"fp16": True, "bf16": True}, {"device": "cuda"}, "fp16"),
        ({"tf32": True}, {}, "tf32"),
        ({"optim": "adamw_bnb_8bit"}, {"device": "cuda"}, "optim"),
        ({"optim": "adamw_tooch"}, {}, "optim"),
        ({"optim_args": "a=b"}, {}, "optim_args"),
        ({"lr_scheduler_type": "cosin"}, {}, "lr_scheduler_type"),
        ({"lr_scheduler_type": "constant", "warmup_steps": 5}, {}, "warmup_steps"),
        ({"lr_scheduler_type": "reduce_lr_on_plateau"}, {"has_eval": False}, "lr_scheduler_type"),
        ({"lr_scheduler_type": "reduce_lr_on_plateau"}, {"strategy": "deepspeed"}, "lr_scheduler_type"),
        ({"lr_scheduler_type": "cosine_with_min_lr"}, {}, "lr_scheduler_kwargs"),
        ({"lr_scheduler_kwargs": {"num_cycle": 2}}, {}, "lr_scheduler_kwargs.num_cycle"),
        ({"lr_scheduler_kwargs": {"num_cycles": "nan"}}, {}, "lr_scheduler_kwargs.num_cycles"),
        ({"lr_scheduler_type": "polynomial", "learning_rate": 1e-8}, {}, "lr_scheduler_kwargs.lr_end"),
        ({"label_smoothing_factor": 1}, {}, "label_smoothing_factor"),
        ({"neftune_noise_alpha": 0}, {}, "neftune_noise_alpha"),
        ({"dataloader_prefetch_factor": 2}, {}, "dataloader_prefetch_factor"),
        ({"dataloader_persistent_workers": True}, {}, "dataloader_persistent_workers"),
        ({"ddp_static_graph": True}, {"strategy": "deepspeed"}, "ddp_static_graph"),
        ({"activation_checkpointing_kwargs": {"use_reentrant": False}}, {}, "activation_checkpointing_kwargs"),
        ({"activation_checkpointing": True, "activation_checkpointing_kwargs": {"reentrant": False}}, {},
         "activation_checkpointing_kwargs.reentrant"),
        ({"bf16": "true"}, {}, "bf16"),
        ({"torch_compile_mode": "fast"}, {}, "torch_compile_mode"),
    ],
)  # fmt: skip
def test_clashes_are_refused(training: dict[str, Any], changes: dict[str, Any], name: str) -> None:
    assert set(problems(training, **changes)) == {name}


def test_extra_packages_open_their_optimizers() -> None:
    optim = {"optim": "adamw_bnb_8bit", "optim_args": "min_8bit_size=4096"}
    assert take(optim, extra_packages=("bitsandbytes",)).values["optim"] == "adamw_bnb_8bit"


def test_defaults_are_the_documented_ones() -> None:
    adapter, full = take({}).values, take({}, adapter=False, device="cuda").values
    assert (adapter["learning_rate"], full["learning_rate"]) == (2e-4, 2e-5)
    assert (adapter["optim"], full["optim"]) == ("adamw_torch", "adamw_torch_fused")
    assert adapter["logging_steps"] == 1
    assert take({"lr_scheduler_type": "constant"}).values["warmup_steps"] == 0
    assert [take({"max_steps": steps}).values["warmup_steps"] for steps in (1, 9, 10)] == [0, 0, 0.03]


# The lists of the releases


def test_no_name_has_two_answers() -> None:
    groups = [set(ACCEPTED), set(TAKEN_OVER_HERE), set(RENAMED), set(REFUSED)]
    assert sum(map(len, groups)) == len(set.union(*groups))
    assert set(RENAMED.values()) <= set(ACCEPTED)


def _documented(shared_data: Path) -> tuple[dict[str, str], set[str], dict[str, str]]:
    """(arguments with a value, names of signatures, generation settings) of the older documents."""
    text = (shared_data.parent / "cases" / "training-arguments-4.37-4.39.txt").read_text()
    printed, signatures, generation = re.split(r"^## .*$", text, flags=re.MULTILINE)[1:]

    def pairs(part: str) -> dict[str, str]:
        return dict(line.split("=", 1) for line in part.split("\n") if "=" in line)

    return pairs(printed), set(signatures.split()), pairs(generation)


def test_every_older_name_has_an_answer(shared_data: Path) -> None:
    printed, signatures, generation = _documented(shared_data)
    assert len(printed) > 110
    assert (set(printed) | signatures | set(generation)) - known_names() == set()
    assert set(generation) - {"use_cache"} == set(GENERATION)


def test_a_dump_of_an_older_run_is_taken_but_for_what_it_names(shared_data: Path) -> None:
    printed, _, _ = _documented(shared_data)
    training = {}
    for name, text in printed.items():
        try:
            training[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            training[name] = text
    found = problems(training)
    assert set(found) == {"generation_config", "predict_with_generate", "hub_token", "push_to_hub_token"}
    kept = {name: value for name, value in training.items() if name not in found}
    values = take(kept).values
    assert (values["max_steps"], values["gradient_accumulation_steps"], values["eval_strategy"]) == (200, 2, "steps")
    assert (values["eval_steps"], values["save_steps"], values["logging_steps"]) == (100, 50, 10)


def test_tables_of_names_are_closed() -> None:
    assert ACCEPTED["optim"].choices == tuple(OPTIMIZERS)
    assert ACCEPTED["lr_scheduler_type"].choices == tuple(SCHEDULERS)
