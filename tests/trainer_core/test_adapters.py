"""Every adapter a job can ask for: what it takes and refuses, what it trains, and what PEFT makes of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from peft import IA3Config, LoraConfig, PeftConfig, PrefixTuningConfig, PromptEncoderConfig, PromptTuningConfig
from pydantic import TypeAdapter, ValidationError
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from api.core.capacity import Room
from api.core.strategy import choose
from tests.trainer_core.test_memory import CONFIGS
from trainer_core.contract import Adapter, AnyAdapter, LoraAdapter, Quantization
from trainer_core.contract.adapters import (
    FreezeAdapter,
    Ia3Adapter,
    PrefixTuningAdapter,
    PromptTuningAdapter,
    PTuningAdapter,
)
from trainer_core.memory.strategies import Load, needs
from trainer_core.memory.trained import IA3_DEFAULTS, count_trained
from trainer_core.model.adapters import add_adapter
from trainer_core.model.base import count_parameters
from trainer_core.model.freeze import freeze
from trainer_core.model.quantized import bits_and_bytes, keep_packing
from trainer_core.model.rules import Setting, check
from trainer_core.run.faults import Fault

pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    # PEFT 0.21 gives prefixes by a name that transformers 5.24 renamed.
    pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning"),
]
PEFT_CLASSES: list[tuple[type[Any], type[PeftConfig]]] = [
    (LoraAdapter, LoraConfig),
    (Ia3Adapter, IA3Config),
    (PromptTuningAdapter, PromptTuningConfig),
    (PrefixTuningAdapter, PrefixTuningConfig),
    (PTuningAdapter, PromptEncoderConfig),
]
read: TypeAdapter[AnyAdapter] = TypeAdapter(Adapter)


def model_of(name: str, **options: Any) -> PreTrainedModel:
    config = AutoConfig.for_model(**{**CONFIGS[name], **options})
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


@pytest.mark.parametrize(("ours", "theirs"), PEFT_CLASSES, ids=lambda one: one.__name__)
def test_every_field_of_peft_is_taken_or_refused_with_a_reason(ours: type[Any], theirs: type[PeftConfig]) -> None:
    fields = {field.name for field in dataclasses.fields(theirs)}
    taken, refused = set(ours.model_fields) & fields, set(ours.refused)
    assert taken | refused == fields, sorted(fields ^ (taken | refused))
    assert not taken & refused
    assert all(len(reason) > 15 for reason in ours.refused.values())


TRAINED: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"type": "lora", "use_dora": True, "use_rslora": True}),
    ("llama", {"type": "lora", "lora_bias": False, "bias": "all"}),
    ("gpt2", {"type": "lora", "bias": "lora_only", "target_modules": ["c_attn"]}),
    ("gpt2", {"type": "lora", "lora_bias": True, "target_modules": ["c_attn"]}),
    ("llama", {"type": "lora", "init_lora_weights": "mica"}),
    ("llama", {"type": "lora", "init_lora_weights": "pissa_niter_4"}),
    ("llama", {"type": "lora", "trainable_token_indices": [1, 2, 5]}),
    ("llama", {"type": "lora", "layer_replication": [[0, 2], [1, 3]]}),
    ("llama", {"type": "lora", "target_modules": ["self_attn.q_proj"], "modules_to_save": ["embed_tokens"]}),
    ("llama", {"type": "lora", "target_modules": ["layers.1.self_attn.q_proj"], "rank_pattern": {"q_proj": 2}}),
    ("llama", {"type": "ia3"}),
    ("qwen3", {"type": "ia3"}),
    ("gpt2", {"type": "ia3"}),
    ("llama", {"type": "ia3", "target_modules": ["q_proj", "up_proj"], "feedforward_modules": ["up_proj"]}),
    ("llama", {"type": "prompt_tuning", "num_virtual_tokens": 7}),
    ("llama", {"type": "prefix_tuning", "num_virtual_tokens": 7}),
    ("llama", {"type": "prefix_tuning", "num_virtual_tokens": 7, "prefix_projection": True}),
    ("gpt2", {"type": "prefix_tuning", "num_virtual_tokens": 7, "prefix_projection": True, "encoder_hidden_size": 5}),
    ("llama", {"type": "p_tuning", "num_virtual_tokens": 7}),
    ("llama", {"type": "p_tuning", "encoder_reparameterization_type": "LSTM", "encoder_hidden_size": 8}),
    ("llama", {"type": "freeze", "trainable_layers": 2}),
    ("qwen3", {"type": "freeze", "trainable_layers": 1, "from": "first", "train_head": True}),
    ("gpt2", {"type": "freeze", "trainable_layers": 1, "train_head": True, "train_embeddings": True}),
]


@pytest.mark.parametrize(("name", "block"), TRAINED, ids=str)
def test_the_config_alone_tells_what_is_trained(name: str, block: dict[str, Any]) -> None:
    adapter, model = read.validate_python(block), model_of(name)
    if isinstance(adapter, FreezeAdapter):
        real: Any = freeze(model, adapter)
    else:
        real = add_adapter(model, adapter, recompute=False, seed=1)
    assert count_trained(CONFIGS[name], adapter) == count_parameters(real)["trainable"]
    ids = torch.arange(12).reshape(2, 6)
    real.train()
    real(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss.backward()
    assert [name for name, one in real.named_parameters() if one.requires_grad and one.grad is None] == []


def test_ia3_defaults_are_pefts() -> None:
    from_peft = {}
    for name in IA3_DEFAULTS.keys() & CONFIGS.keys():
        config = add_adapter(model_of(name), read.validate_python({"type": "ia3"}), False, 1).active_peft_config
        from_peft[name] = set(config.target_modules), set(config.feedforward_modules)
    assert from_peft == {name: (set(IA3_DEFAULTS[name][0]), set(IA3_DEFAULTS[name][1])) for name in from_peft}


@pytest.mark.parametrize(
    ("block", "param", "near"),
    [
        ({"type": "lora", "target_modules": ["q_porj"]}, "adapter.target_modules", "q_proj"),
        ({"type": "lora", "target_modules": ["q_proj", "v_porj"]}, "adapter.target_modules", "v_proj"),
        ({"type": "lora", "target_modules": ".*query"}, "adapter.target_modules", "pattern"),
        ({"type": "lora", "modules_to_save": ["lm_haed"]}, "adapter.modules_to_save", "lm_head"),
        ({"type": "lora", "target_parameters": ["q_proj.wieght"]}, "adapter.target_parameters", "weight"),
        ({"type": "lora", "trainable_token_indices": [10**6]}, "adapter.trainable_token_indices", "ids from 0"),
        (
            {"type": "ia3", "target_modules": ["k_porj"], "feedforward_modules": []},
            "adapter.target_modules",
            "k_proj",
        ),
    ],
    ids=str,
)
def test_a_name_that_the_model_lacks_is_refused_with_the_nearest(block: dict[str, Any], param: str, near: str) -> None:
    adapter: Any = read.validate_python(block)
    with pytest.raises(Fault) as caught:
        add_adapter(model_of("llama"), adapter, recompute=False, seed=1)
    assert caught.value.cause.param == param
    assert near in str(caught.value.cause.hint)


@pytest.mark.parametrize("field", ["modules_to_save", "target_modules"])
def test_half_of_tied_embeddings_is_not_trained_in_silence(field: str) -> None:
    block = {"type": "lora", "target_modules": ["q_proj"], field: ["embed_tokens"]}
    adapter: Any = read.validate_python(block)
    with pytest.raises(Fault, match="one matrix"):
        add_adapter(model_of("llama", tie_word_embeddings=True), adapter, recompute=False, seed=1)
    tied = CONFIGS["llama"] | {"tie_word_embeddings": True}
    found = check(adapter, None, Setting("sft", {}, tied, None))
    assert [one.param for one in found] == [f"adapter.{field}"]
    kept: Any = read.validate_python(block | {"ensure_weight_tying": True})
    add_adapter(model_of("llama", tie_word_embeddings=True), kept, recompute=False, seed=1)


QUANTISED = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
NF4 = Quantization(bits="nf4")
REFUSED: list[tuple[dict[str, Any] | None, Quantization | None, dict[str, Any], str]] = [
    (None, NF4, {}, "quantization"),
    ({"type": "freeze", "trainable_layers": 1}, NF4, {}, "quantization"),
    ({"type": "lora"}, NF4, {"zero_stage": 3}, "quantization"),
    (None, None, {"model_config": QUANTISED}, "model"),
    ({"type": "lora"}, NF4, {"model_config": QUANTISED}, "quantization"),
    ({"type": "lora"}, None, {"model_config": QUANTISED, "zero_stage": 3}, "model"),
    ({"type": "lora", "use_dora": True}, Quantization(bits="int8"), {}, "adapter.use_dora"),
    ({"type": "lora", "init_lora_weights": "pissa"}, NF4, {}, "adapter.init_lora_weights"),
    ({"type": "lora", "init_lora_weights": "olora"}, None, {"zero_stage": 3}, "adapter.init_lora_weights"),
    ({"type": "lora", "loraplus_lr_ratio": 4}, None, {"has_own_optimizer": True}, "adapter.loraplus_lr_ratio"),
    ({"type": "prompt_tuning"}, None, {"method": "classification"}, "adapter.type"),
    ({"type": "p_tuning"}, None, {"zero_stage": 3}, "adapter.type"),
    ({"type": "p_tuning"}, None, {"packs": True}, "adapter.type"),
    ({"type": "prefix_tuning"}, None, {"training": {"gradient_checkpointing": True}}, "adapter.type"),
    ({"type": "freeze", "trainable_layers": 4}, None, {"model_config": CONFIGS["llama"]}, "adapter.trainable_layers"),
    (
        {"type": "lora", "target_modules": ["q_porj"]}, None, {"model_config": CONFIGS["llama"]},
        "adapter.target_modules[0]",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("block", "quantization", "setting", "param"), REFUSED, ids=str)
def test_what_does_not_go_together_is_said_with_its_reason(
    block: dict[str, Any] | None, quantization: Quantization | None, setting: dict[str, Any], param: str
) -> None:
    adapter = read.validate_python(block) if block else None
    usual: dict[str, Any] = {"method": "sft", "training": {}, "model_config": {}, "zero_stage": None}
    found = check(adapter, quantization, Setting(**(usual | setting)))
    assert [one.param for one in found] == [param]
    assert found[0].hint
    fits = {"type": "lora"} if block and block["type"] == "lora" else block
    assert check(read.validate_python(fits) if fits else None, None, Setting(**usual)) == []


@pytest.mark.parametrize(
    "block",
    [
        {"type": "lora", "target_parameters": ["experts.w"], "lora_dropout": 0.1},
        {"type": "lora", "init_lora_weights": "orthogonal", "r": 3},
        {"type": "lora", "init_lora_weights": "mica", "loraplus_lr_ratio": 2},
        {"type": "lora", "target_modules": []},
        {"type": "ia3", "target_modules": ["k_proj"]},
        {"type": "prompt_tuning", "prompt_tuning_init": "TEXT"},
        {"type": "prefix_tuning", "encoder_hidden_size": 4},
        {"type": "p_tuning", "encoder_dropout": 0.1},
        {"type": "freeze"},
    ],
    ids=str,
)
def test_fields_that_do_not_fit_are_refused(block: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        read.validate_python(block)


@pytest.mark.parametrize("bits", ["nf4", "fp4", "int8"])
def test_an_evaluation_leaves_the_quantised_base_as_it_is(bits: Any, tmp_path: Any) -> None:
    model_of("llama").save_pretrained(tmp_path)
    options = bits_and_bytes(Quantization(bits=bits), torch.float32)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, quantization_config=options, dtype=torch.float32)
    keep_packing(model)
    adapted = add_adapter(model, LoraAdapter(use_dora=bits != "int8", r=2), recompute=False, seed=1)
    counts = count_parameters(adapted)
    assert counts["total"] - counts["trainable"] == sum(one.numel() for one in model_of("llama").parameters())
    assert bits in counts["by_dtype"]
    ids = torch.arange(12).reshape(2, 6)
    adapted.train()
    before = adapted(input_ids=ids).logits.detach()
    adapted.eval()
    with torch.no_grad():
        adapted(input_ids=ids)
    adapted.train()
    assert torch.equal(adapted(input_ids=ids).logits.detach(), before)
    plain = model_of("llama")(input_ids=ids).logits
    assert 0 < (before - plain).abs().max() < 0.4 * plain.abs().max()


@pytest.mark.parametrize(
    ("block", "quantization", "whole"),
    [
        ({"type": "lora"}, None, False),
        ({"type": "lora"}, NF4, True),
        ({"type": "lora", "init_lora_weights": "pissa_niter_2"}, None, True),
        ({"type": "p_tuning"}, None, True),
        ({"type": "freeze", "trainable_layers": 1}, None, False),
    ],
    ids=str,
)
def test_auto_stays_above_zero_3_where_that_is_refused(
    block: dict[str, Any], quantization: Quantization | None, whole: bool
) -> None:
    load = Load(
        model_config=CONFIGS["llama"],
        n_stored=None,
        adapter=read.validate_python(block),
        quantization=quantization,
        training={},
        n_processes=2,
        max_length=64,
        device="cuda",
    )
    assert load.needs_whole_weights is whole
    tight = choose(load, [Room("node", 20_000, 10**12)])
    assert (tight.strategy.stage == 3) is not whole


def test_a_quantised_base_is_estimated_smaller_by_its_bits() -> None:
    big = CONFIGS["llama"] | {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8}
    sizes = {}
    for bits in (None, "int8", "nf4"):
        quantization = Quantization(bits=bits) if bits else None  # type: ignore[arg-type]
        load = Load(
            model_config=big,
            n_stored=None,
            adapter=LoraAdapter(),
            quantization=quantization,
            training={},
            n_processes=1,
            max_length=64,
            device="cpu",
        )
        sizes[bits] = needs(load)[0].memory.parameters_bytes
    assert sizes["int8"] < sizes[None] / 3
    assert sizes["nf4"] < 0.65 * sizes["int8"]
