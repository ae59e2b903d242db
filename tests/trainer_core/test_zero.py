"""The DeepSpeed configuration: one owner for each number, and no key of a block that does nothing in silence."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from trainer_core.arguments.resolve import resolve
from trainer_core.contract import ParallelSpec
from trainer_core.problems import OptionsInvalid, Problem
from trainer_core.zero.config import ZeroPlan, build, check, strategy_of

# Fragments and whole files of the integration document -> what is at fault when the job says nothing but its defaults.
AT_FAULT = {
    "03": {"scheduler.type"}, "04": {"scheduler.type"}, "11": {"scheduler.type"}, "18": {"scheduler.type"},
    "20": {"scheduler.type"}, "10": {"zero_optimization.aio"}, "27": {"amp"}, "23": {"fp16.enabled"},
    "25": {"bf16.enabled"}, "29": {"train_batch_size"}, "31": {"gradient_accumulation_steps"},
    "15": {"optimizer.params.lr", "optimizer.params.betas", "optimizer.params.weight_decay"},
    "19": {"scheduler.type", "scheduler.params.warmup_max_lr", "scheduler.params.warmup_num_steps"},
    "34": {"zero_optimization.stage3_gather_16bit_weights_on_model_save"},
}  # fmt: skip
AT_FAULT["12"] = AT_FAULT["13"] = AT_FAULT["15"] | AT_FAULT["19"] | AT_FAULT["23"]

# The job under which each of those acts as it stands.
MATCHING: dict[str, dict[str, Any]] = {
    "03": {"lr_scheduler_type": "constant_with_warmup"}, "04": {"lr_scheduler_type": "constant_with_warmup"},
    "11": {"lr_scheduler_type": "constant_with_warmup"}, "18": {"lr_scheduler_type": "constant_with_warmup"},
    "20": {"lr_scheduler_type": "linear"}, "23": {"fp16": True}, "25": {"bf16": True},
    "29": {"gradient_accumulation_steps": 3}, "31": {"gradient_accumulation_steps": 3},
    "15": {"learning_rate": 1e-3, "adam_beta1": 0.8, "weight_decay": 3e-7},
    "19": {"learning_rate": 1e-3, "lr_scheduler_type": "constant_with_warmup", "warmup_steps": 1000},
    "12": {"learning_rate": 3e-5, "adam_beta1": 0.8, "weight_decay": 3e-7, "fp16": True, "warmup_steps": 500,
           "lr_scheduler_type": "constant_with_warmup"},
}  # fmt: skip
MATCHING["13"] = MATCHING["12"]


def job(training: dict[str, Any] | None = None) -> dict[str, Any]:
    return resolve(training or {}, has_eval=True, device="cuda", adapter=True, strategy="deepspeed").values


def plan(
    block: dict[str, Any] | None = None, training: dict[str, Any] | None = None, device: Any = "cpu", **parallel: Any
) -> ZeroPlan:
    spec = ParallelSpec(**{"strategy": "deepspeed", "deepspeed": block, **parallel})
    return check(spec, job(training), device)


def problems(*args: Any, **kwargs: Any) -> dict[str, Problem]:
    with pytest.raises(OptionsInvalid) as caught:
        plan(*args, **kwargs)
    return {problem.param.removeprefix("parallel.deepspeed."): problem for problem in caught.value.problems}


@pytest.fixture(scope="session")
def blocks(shared_data: Path) -> dict[str, dict[str, Any]]:
    files = sorted((shared_data.parent / "cases" / "deepspeed").glob("*.json"))
    assert len(files) == 34
    return {file.name[:2]: json.loads(file.read_text()) for file in files}


@pytest.mark.parametrize("number", [f"{number:02}" for number in range(1, 35)])
def test_documented_block_acts_or_is_refused_with_the_reason(number: str, blocks: dict[str, dict[str, Any]]) -> None:
    block = blocks[number]
    if number in AT_FAULT:
        found = problems(block, device="cuda")
        assert set(found) == AT_FAULT[number]
        assert all(problem.hint for problem in found.values())
    else:
        assert_acts(plan(block, device="cuda"), block)


@pytest.mark.parametrize("number", sorted(MATCHING))
def test_documented_block_acts_beside_a_job_of_the_same_numbers(number: str, blocks: dict[str, dict[str, Any]]) -> None:
    assert_acts(plan(blocks[number], MATCHING[number], "cuda"), blocks[number])


def test_documented_nvme_block_acts_once_its_aio_stands_at_the_top(blocks: dict[str, dict[str, Any]]) -> None:
    block = copy.deepcopy(blocks["10"])
    block["aio"] = block["zero_optimization"].pop("aio")
    block["aio"]["intra_op_parallelism"] = block["aio"].pop("thread_count")
    spec = ParallelSpec(strategy="deepspeed", deepspeed=block)
    found = check(spec, job(), "cuda", nvme_roots=["/local_nvme"])
    assert (found.stage, found.offload_optimizer, found.offload_param) == (3, "nvme", "nvme")
    with pytest.raises(OptionsInvalid, match="none here"):
        check(spec, job(), "cuda")
    block["zero_optimization"]["offload_param"]["nvme_path"] = "/local_nvme/../etc"
    with pytest.raises(OptionsInvalid, match=r"offload_param\.nvme_path"):
        check(ParallelSpec(strategy="deepspeed", deepspeed=block), job(), "cuda", nvme_roots=["/local_nvme"])


def assert_acts(found: ZeroPlan, block: dict[str, Any]) -> None:
    """Every value of the block is in the configuration, as the number it is; "auto" is completed or the Trainer's."""
    left = {"reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold", "enabled",
            "total_num_steps", "warmup_num_steps"}  # fmt: skip
    for path, value in leaves(block):
        there: Any = found.config
        for part in path:
            there = there[part]
        if value == "auto":
            assert there != "auto" or path[-1] in left
        else:
            assert there == value or (path[-1] == "enabled" and there == "auto" and value is False)


def leaves(block: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found = []
    for name, value in block.items():
        found += leaves(value, (*path, name)) if isinstance(value, dict) else [((*path, name), value)]
    return found


# One owner for each number


@pytest.mark.parametrize(
    ("block", "training", "key", "values"),
    [
        ({"gradient_accumulation_steps": "8"}, {"gradient_accumulation_steps": 4}, "gradient_accumulation_steps",
         ("8", "4")),
        ({"optimizer": {"type": "AdamW", "params": {"lr": 5e-5}}}, {"learning_rate": 1e-4}, "optimizer.params.lr",
         ("5e-05", "0.0001")),
        ({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 0}}}, {"lr_scheduler_type": "linear"},
         "scheduler.params.total_num_steps", ("at least 1",)),
        ({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 9}}},
         {"lr_scheduler_type": "linear", "max_steps": 10}, "scheduler.params.total_num_steps", ("9", "10")),
        ({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}}},
         {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 0.1, "max_steps": 20},
         "scheduler.params.warmup_num_steps", ("5", "2")),
        ({"fp16": {"enabled": True}}, {}, "fp16.enabled", ("true", "false")),
        ({"bf16": {"enabled": False}}, {"bf16": True}, "bf16.enabled", ("false", "true")),
        ({"gradient_clipping": 0.5}, {}, "gradient_clipping", ("0.5", "1.0")),
        ({"train_micro_batch_size_per_gpu": 16}, {}, "train_micro_batch_size_per_gpu", ("16", "4")),
    ],
)  # fmt: skip
def test_a_clash_is_refused_with_both_values(
    block: dict[str, Any], training: dict[str, Any], key: str, values: tuple[str, ...]
) -> None:
    found = problems(block, training, "cuda")
    assert set(found) == {key}
    assert all(value in str(found[key]) for value in values)


@pytest.mark.parametrize(
    ("block", "training"),
    [
        ({"gradient_accumulation_steps": "8"}, {"gradient_accumulation_steps": 8}),
        ({"gradient_accumulation_steps": 8.0}, {"gradient_accumulation_steps": 8}),
        ({"gradient_clipping": "1e0"}, {}),
        ({"optimizer": {"type": "AdamW", "params": {"lr": "1e-4"}}}, {"learning_rate": 0.0001}),
        ({"train_batch_size": 8}, {}),
    ],
)
def test_an_equal_number_is_taken_whatever_its_spelling(block: dict[str, Any], training: dict[str, Any]) -> None:
    config = plan(block, training, n_processes=2).config
    assert config["gradient_accumulation_steps"] == training.get("gradient_accumulation_steps", 1)
    assert config["train_batch_size"] == 8 * config["gradient_accumulation_steps"]


def test_stage_of_the_block_and_of_the_job() -> None:
    assert plan({"zero_optimization": {"stage": 3}}).stage == 3
    assert plan().stage == 2
    assert "zero_optimization.stage" in problems({"zero_optimization": {"stage": 3}}, zero_stage=2)
    assert plan({"zero_optimization": {"stage": "auto"}}, zero_stage=1).config["zero_optimization"]["stage"] == 1


# Keys


@pytest.mark.parametrize(
    ("block", "key", "hint"),
    [
        ({"zero_optimisation": {"stage": 2}}, "zero_optimisation", "Did you mean `zero_optimization`?"),
        ({"zero_optimization": {"stag": 2}}, "zero_optimization.stag", "Did you mean `stage`?"),
        ({"zero_optimization": {"offload_optimizer": {"devise": "cpu"}}}, "zero_optimization.offload_optimizer.devise",
         "Did you mean `device`?"),
        ({"optimizer": {"type": "AdamW", "params": {"weight_dekay": 0}}}, "optimizer.params.weight_dekay",
         "Did you mean `weight_decay`?"),
        ({"optimizer": {"type": "AdanW"}}, "optimizer.type", "Did you mean `AdamW`?"),
        ({"optimizer": {"params": {"lr": "auto"}}}, "optimizer.type", "Valid: Adam, AdamW."),
        ({"scheduler": {"type": "OneCycle", "params": {}}}, "scheduler.type", None),
        ({"zero_optimization": {"cpu_offload": True}}, "zero_optimization.cpu_offload", "Use offload_optimizer."),
        ({"bfloat16": {"enabled": True}}, "bfloat16", "Use bf16."),
        ({"zero_optimization": True}, "zero_optimization", None),
        ({"zero_optimization": {"reduce_bucket_size": 2.5}}, "zero_optimization.reduce_bucket_size", None),
        ({"steps_per_print": "auto"}, "steps_per_print", None),
        ({"fp16": {"loss_scale": "nan"}}, "fp16.loss_scale", None),
        ({"zero_optimization": {"offload_param": {"device": "cpu"}}}, "zero_optimization.offload_param.device", None),
        ({"zero_optimization": {"stage": 3, "round_robin_gradients": True}}, "zero_optimization.round_robin_gradients",
         None),
        ({"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": False}},
         "zero_optimization.stage3_gather_16bit_weights_on_model_save", None),
        ({"zero_optimization": {"stage": 3, "zero_quantized_weights": True}},
         "zero_optimization.zero_quantized_weights", None),
        ({"zero_force_ds_cpu_optimizer": True}, "zero_force_ds_cpu_optimizer", None),
        ({"zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": "/n"}}},
         "zero_optimization.offload_optimizer.device", None),
    ],
)  # fmt: skip
def test_a_key_that_cannot_act_is_refused_with_its_path(block: dict[str, Any], key: str, hint: str | None) -> None:
    found = problems(block)
    assert set(found) == {key}
    if hint:
        assert found[key].hint == hint


def test_scientific_counts_become_whole_numbers() -> None:
    zero = plan({"zero_optimization": {"reduce_bucket_size": 2e8, "allgather_bucket_size": "5e8"}}).config[
        "zero_optimization"
    ]
    assert (zero["reduce_bucket_size"], zero["allgather_bucket_size"]) == (200_000_000, 500_000_000)
    assert isinstance(zero["reduce_bucket_size"], int)


# The job form alone


@pytest.mark.parametrize(
    ("parallel", "strategy"),
    [({}, "ddp"), ({"zero_stage": 0}, "deepspeed"), ({"offload": "optimizer"}, "deepspeed"), ({"deepspeed": {}}, "ddp"),
     ({"deepspeed": {"steps_per_print": 1}}, "deepspeed"), ({"strategy": "deepspeed"}, "deepspeed")],
)  # fmt: skip
def test_auto_is_deepspeed_as_soon_as_anything_of_it_is_asked(parallel: dict[str, Any], strategy: str) -> None:
    assert strategy_of(ParallelSpec(**parallel)) == strategy
    assert check(ParallelSpec(**parallel), job(), "cpu").strategy == strategy


@pytest.mark.parametrize("parallel", [{"zero_stage": 2}, {"offload": "all"}, {"deepspeed": {"steps_per_print": 1}}])
def test_ddp_takes_nothing_of_deepspeed(parallel: dict[str, Any]) -> None:
    with pytest.raises(OptionsInvalid):
        check(ParallelSpec(strategy="ddp", **parallel), job(), "cpu")


@pytest.mark.parametrize(("stage", "offload"), [(0, "optimizer"), (0, "all"), (1, "all"), (2, "all")])
def test_offload_needs_its_stage(stage: int, offload: str) -> None:
    with pytest.raises(OptionsInvalid, match="needs ZeRO stage"):
        plan(zero_stage=stage, offload=offload)


def test_precision_that_would_not_be_is_refused() -> None:
    with pytest.raises(OptionsInvalid, match=r"training\.fp16"):
        check(ParallelSpec(zero_stage=2), {"fp16": True}, "cpu")
    with pytest.raises(OptionsInvalid, match="would train in bf16"):
        check(ParallelSpec(zero_stage=2), {"bf16_full_eval": True}, "cpu")


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_build_writes_every_number_of_the_job(stage: int, device: Any) -> None:
    training = job(
        {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3, "max_grad_norm": 0.5, "bf16": True}
    )
    config = build(ParallelSpec(zero_stage=stage, n_processes=4), training, device)
    assert config["train_batch_size"] == 24
    assert config["train_micro_batch_size_per_gpu"] == 2
    assert config["gradient_accumulation_steps"] == 3
    assert config["gradient_clipping"] == 0.5
    assert (config["bf16"], config["fp16"]) == ({"enabled": True}, {"enabled": False})
    assert config["zero_optimization"]["stage"] == stage
    assert (config["zero_allow_untested_optimizer"], config["zero_force_ds_cpu_optimizer"]) == (True, False)
    assert json.loads(json.dumps(config)) == config


def test_block_refines_the_form_s_offload() -> None:
    block = {"zero_optimization": {"offload_optimizer": {"device": "cpu", "buffer_count": 8}}}
    zero = plan(block, zero_stage=3, offload="all").config["zero_optimization"]
    assert zero["offload_optimizer"] == {"device": "cpu", "pin_memory": False, "buffer_count": 8}
    assert zero["offload_param"]["device"] == "cpu"


def test_the_block_s_optimizer_is_torch_s_own_with_the_job_s_numbers() -> None:
    found = plan({"optimizer": {"type": "adamw", "params": {"lr": "auto"}}}, {"learning_rate": 3e-4, "adam_beta1": 0.8})
    assert found.config["optimizer"] == {
        "type": "AdamW",
        "params": {"lr": 3e-4, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 0.0, "torch_adam": True},
    }
    assert any("decays every weight" in note for note in found.notes)
