"""The schema against the installed DeepSpeed: no key missing, and what is accepted really is accepted there."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest
from deepspeed.comm.config import CommsLoggerConfig
from deepspeed.runtime import config as ds_config
from deepspeed.runtime import constants as ds_constants
from deepspeed.runtime import lr_schedules
from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
from deepspeed.runtime.swap_tensor.aio_config import AIO_DEFAULT_DICT
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
from deepspeed.runtime.zero.leaf_module_config import DeepSpeedZeroLeafModuleConfig
from deepspeed.runtime.zero.offload_config import DeepSpeedZeroOffloadOptimizerConfig, DeepSpeedZeroOffloadParamConfig
from deepspeed.utils.config import DeepSpeedThroughputTimerConfig
from transformers import TrainingArguments

from trainer_core.arguments.resolve import resolve
from trainer_core.contract import ParallelSpec
from trainer_core.zero.config import build
from trainer_core.zero.owners import RELEASE_DEFAULTS
from trainer_core.zero.schema import (
    OFFLOAD_OPTIMIZER,
    OFFLOAD_PARAM,
    SCHEDULERS,
    SCHEMA,
    ZERO_OPTIMIZATION,
    Block,
    Refused,
)


def block_of(name: str) -> Block:
    node = SCHEMA[name]
    assert isinstance(node, dict)
    return node


def leaf_block(block: Block, name: str) -> Block:
    node = block[name]
    assert isinstance(node, dict)
    return node


@pytest.mark.parametrize(
    ("model", "block"),
    [
        (DeepSpeedZeroConfig, ZERO_OPTIMIZATION),
        (DeepSpeedZeroOffloadOptimizerConfig, OFFLOAD_OPTIMIZER),
        (DeepSpeedZeroOffloadParamConfig, OFFLOAD_PARAM),
        (DeepSpeedFP16Config, block_of("fp16")),
        (DeepSpeedBF16Config, block_of("bf16")),
        (CommsLoggerConfig, block_of("comms_logger")),
        (DeepSpeedThroughputTimerConfig, leaf_block(block_of("timers"), "throughput")),
        (DeepSpeedZeroLeafModuleConfig, leaf_block(ZERO_OPTIMIZATION, "leaf_module")),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_every_field_of_deepspeed_s_models_has_an_answer(model: Any, block: Block) -> None:
    fields = set(model.model_fields) | {f.alias for f in model.model_fields.values() if f.alias}
    assert fields - set(block) == set()
    taken = {name for name, node in block.items() if not isinstance(node, Refused)}
    assert taken - fields == set()


def test_removed_keys_are_refused() -> None:
    for name in ds_config._REMOVED_TOP_LEVEL_CONFIG_KEYS:
        assert isinstance(SCHEMA[name], Refused)
    for name in ds_config._REMOVED_ZERO_CONFIG_KEYS:
        assert isinstance(ZERO_OPTIMIZATION[name], Refused)


def test_aio_keys_are_deepspeed_s() -> None:
    assert {name for name, node in block_of("aio").items() if not isinstance(node, Refused)} == set(AIO_DEFAULT_DICT)


def is_whole(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "param_dict"


def is_key(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id.isupper()) or isinstance(node, ast.Constant)


def test_every_top_level_key_read_by_deepspeed_has_an_answer() -> None:
    """Every first-level key that the configuration's readers look up, read off their source."""
    names = {**vars(ds_constants), **vars(ds_config)}
    looked_up: list[ast.expr] = []
    for node in ast.walk(ast.parse(inspect.getsource(ds_config))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "get_scalar_param" and is_whole(node.args[0]):
            looked_up.append(node.args[1])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            looked_up += node.args[:1] if is_whole(node.func.value) else []
        elif isinstance(node, ast.Subscript) and is_whole(node.value):
            looked_up.append(node.slice)
    keys = {names[key.id] if isinstance(key, ast.Name) else key.value for key in looked_up if is_key(key)}
    assert len(keys) > 25
    assert keys - set(SCHEMA) == set()


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
def test_schedule_parameters_are_deepspeed_s(name: str) -> None:
    assert set(SCHEDULERS[name][1]) == set(inspect.signature(getattr(lr_schedules, name)).parameters) - {"optimizer"}


def test_defaults_of_the_release_are_the_release_s() -> None:
    fields = {field.name: field.default for field in dataclasses.fields(TrainingArguments)}
    assert {name: getattr(fields[name], "value", fields[name]) for name in RELEASE_DEFAULTS} == RELEASE_DEFAULTS


BLOCKS: list[dict[str, Any]] = [
    {},
    {"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}},
    {"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": "auto", "total_num_steps": "auto"}}},
    {"zero_optimization": {"reduce_bucket_size": 2e8, "contiguous_gradients": True}, "communication_data_type": "fp32"},
    {"fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000}, "steps_per_print": 2000},
    {
        "comms_logger": {"enabled": False},
        "flops_profiler": {"enabled": False},
        "data_types": {"grad_accum_dtype": "fp32"},
    },
]


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: "+".join(block) or "none")
def test_what_is_accepted_is_accepted_by_both_libraries(stage: int, block: dict[str, Any], tmp_path: Path) -> None:
    """The Trainer finds no mismatch, and DeepSpeed reads what it completed."""
    resolved = resolve({"max_steps": 20}, has_eval=False, device="cpu", adapter=False, strategy="deepspeed")
    config = build(ParallelSpec(zero_stage=stage, deepspeed=block), resolved.values, "cpu")
    arguments = TrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, report_to=[], deepspeed=config, **resolved.values
    )
    completed = arguments.hf_deepspeed_config
    model = type("Model", (), {"config": type("Config", (), {"hidden_size": 64})})
    completed.trainer_config_finalize(arguments, model, 20)
    assert completed.mismatches == []
    assert "auto" not in str(completed.config)
    read = ds_config.DeepSpeedConfig(completed.config)
    assert read.zero_config.stage == stage
    assert read.train_batch_size == 4
    assert read.gradient_clipping == 1.0
