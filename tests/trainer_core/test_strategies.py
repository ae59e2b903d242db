"""The table of strategies: what each needs, in which precision, and what a job asks for."""

from __future__ import annotations

from typing import Any

import pytest

from trainer_core.contract import LoraAdapter, ParallelSpec
from trainer_core.memory.estimate import estimate
from trainer_core.memory.strategies import STRATEGIES, Load, Strategy, needs, strategy_asked, weights_dtype

LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256}  # fmt: skip


def load(**changes: Any) -> Load:
    facts: dict[str, Any] = {
        "model_config": LLAMA, "n_stored": None, "adapter": None, "training": {"bf16": True}, "n_processes": 8,
        "max_length": 1024, "device": "cuda",
    }  # fmt: skip
    return Load(**(facts | changes))


def test_each_strategy_needs_what_the_estimator_says() -> None:
    found = needs(load(training={"bf16": True, "per_device_train_batch_size": 2}))
    assert [need.strategy for need in found] == list(STRATEGIES)
    third = next(need for need in found if need.strategy == Strategy(3))
    expected = estimate(
        LLAMA, None, adapter=None, dtype="bfloat16", zero_stage=3, offload="none", n_processes=8, per_device_batch=2,
        max_length=1024, optim="adamw_torch_fused", gradient_checkpointing=False,
    )  # fmt: skip
    assert third.memory == expected


def test_each_stage_needs_less_of_a_device_than_the_one_before() -> None:
    sharded = [need.memory.device_bytes for need in needs(load(), [Strategy(stage) for stage in (0, 1, 2, 3)])]
    assert sharded == sorted(sharded, reverse=True)
    assert len(set(sharded)) == 4


def test_nothing_is_told_of_a_model_of_unknown_size() -> None:
    assert needs(load(model_config={"model_type": "strange"})) == []
    told = needs(load(model_config={"model_type": "strange"}, n_stored=1000))[0]
    assert (told.memory.parameters_bytes, told.memory.activations_bytes, told.checkpoint_bytes) == (4000, 0, 12_000)


def test_an_adapter_of_an_unknown_model_has_no_known_checkpoint() -> None:
    told = needs(load(model_config={"model_type": "strange"}, n_stored=1000, adapter=LoraAdapter()))
    assert {need.checkpoint_bytes for need in told} == {None}


@pytest.mark.parametrize(
    ("parallel", "expected"),
    [
        ({}, None),
        ({"strategy": "auto", "n_processes": 4}, None),
        ({"strategy": "ddp"}, Strategy(None)),
        ({"zero_stage": 3, "offload": "all"}, Strategy(3, "all")),
        ({"offload": "optimizer"}, Strategy(2, "optimizer")),
        ({"strategy": "deepspeed", "deepspeed": {"zero_optimization": {"stage": 1}}}, Strategy(1)),
    ],
)
def test_what_a_job_asks_for(parallel: dict[str, Any], expected: Strategy | None) -> None:
    spec = ParallelSpec.model_validate(parallel)
    assert strategy_asked(spec) == expected
    if expected is not None:
        applied = expected.applied(spec)
        assert (applied.zero_stage, applied.offload, applied.n_processes) == (
            expected.stage,
            expected.offload,
            spec.n_processes,
        )


@pytest.mark.parametrize(
    ("training", "has_adapter", "device", "is_deepspeed", "expected"),
    [
        ({}, False, "cuda", False, "float32"),
        ({"bf16": True}, False, "cuda", False, "float32"),
        ({"bf16": True}, False, "cuda", True, "bfloat16"),
        ({"fp16": True}, False, "cuda", True, "float16"),
        ({}, True, "cuda", False, "bfloat16"),
        ({}, True, "cpu", False, "float32"),
        ({"fp16": True}, True, "cuda", False, "float32"),
    ],
)
def test_the_precision_weights_are_held_in(
    training: dict[str, Any], has_adapter: bool, device: str, is_deepspeed: bool, expected: str
) -> None:
    found = weights_dtype(training, has_adapter=has_adapter, device=device, is_deepspeed=is_deepspeed)
    assert found == expected
