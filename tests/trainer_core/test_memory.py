"""Memory estimates agree with DeepSpeed's estimators and with real models' parameters and saved activations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from trainer_core.contract import LoraAdapter
from trainer_core.memory.estimate import MemoryEstimate, checkpoint_bytes, count_parameters, estimate
from trainer_core.memory.shape import read_shape
from trainer_core.memory.trained import count_trained

SMALL = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
         "intermediate_size": 100, "vocab_size": 301}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **SMALL},
    "llama tied": {"model_type": "llama", **SMALL, "tie_word_embeddings": True},
    "llama biased": {"model_type": "llama", **SMALL, "attention_bias": True, "mlp_bias": True},
    "mistral": {"model_type": "mistral", **SMALL, "head_dim": 16},
    "qwen2": {"model_type": "qwen2", **SMALL, "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", **SMALL, "head_dim": 16},
    "smollm3": {"model_type": "smollm3", **SMALL, "pad_token_id": 0},
    "gpt2": {"model_type": "gpt2", "n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 64, "vocab_size": 301},
}
SMOLLM2 = {"model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
           "num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49152,
           "tie_word_embeddings": True}  # fmt: skip
LLAMA_8B = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256}  # fmt: skip


def real_config(config: dict[str, Any]) -> PreTrainedConfig:
    return AutoConfig.for_model(**config)


def real_model(config: dict[str, Any], device: str = "meta") -> Any:
    with torch.device(device):
        return AutoModelForCausalLM.from_config(real_config(config))


def sizes(config: dict[str, Any] | None = None, **changes: Any) -> MemoryEstimate:
    facts: dict[str, Any] = {
        "adapter": None, "dtype": "bfloat16", "zero_stage": 2, "offload": "none", "n_processes": 8,
        "per_device_batch": 1, "max_length": 1024, "optim": "adamw_torch", "gradient_checkpointing": False,
    }  # fmt: skip
    found = estimate(config or LLAMA_8B, None, **(facts | changes))
    assert found is not None
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_those_of_the_real_model(name: str) -> None:
    model = real_model(CONFIGS[name])
    real = sum({id(p): p.numel() for p in model.parameters()}.values())
    assert count_parameters(CONFIGS[name]) == real
    assert count_parameters(real_config(CONFIGS[name]).to_dict()) == real


def test_well_known_sizes() -> None:
    assert count_parameters(SMOLLM2) == 134_515_008
    assert count_parameters(LLAMA_8B) == 8_030_261_248


def test_unknown_types_are_not_guessed() -> None:
    assert count_parameters({"model_type": "mamba"}) is None
    assert count_parameters({"model_type": "llama"}) is None
    assert count_parameters({}) is None


ADAPTERS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("qwen3", {}),
    ("gpt2", {}),
    ("mistral", {"r": 4, "use_dora": True}),
    ("llama", {"exclude_modules": ["down_proj"]}),
    ("gpt2", {"exclude_modules": ["c_fc"]}),
    ("llama", {"layers_to_transform": [0, 2], "target_modules": ["q_proj", "down_proj"]}),
    ("llama", {"target_modules": ["v_proj"], "modules_to_save": ["lm_head"]}),
    ("gpt2", {"target_modules": ["c_proj"], "r": 3}),
]


# PEFT 0.21 still reads a name that transformers 5.24 renamed.
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.parametrize(("name", "adapter"), ADAPTERS, ids=str)
def test_adapter_trains_what_peft_trains(name: str, adapter: dict[str, Any]) -> None:
    peft_config = LoraConfig(
        task_type="CAUSAL_LM", fan_in_fan_out=name == "gpt2", **{"target_modules": "all-linear", **adapter}
    )
    real = get_peft_model(real_model(CONFIGS[name], "cpu"), peft_config)
    assert count_trained(CONFIGS[name], LoraAdapter(**adapter)) == sum(
        p.numel() for p in real.parameters() if p.requires_grad
    )


def test_named_modules_are_adapted_alone() -> None:
    llama = CONFIGS["llama"]
    assert count_trained(llama, LoraAdapter(r=2, target_modules=["q_proj"])) == 3 * 2 * (48 + 48)
    pattern = LoraAdapter(r=2, target_modules=["q_proj"], rank_pattern={"q_proj": 3})
    assert count_trained(llama, pattern) == 3 * 3 * (48 + 48)


@pytest.mark.parametrize("n_processes", [1, 2, 8])
@pytest.mark.parametrize("config", [SMOLLM2, LLAMA_8B], ids=["135M", "8B"])
def test_zero_2_states_are_deepspeed_s(n_processes: int, config: dict[str, Any]) -> None:
    total = count_parameters(config) or 0
    for offload, on_cpu in (("none", False), ("optimizer", True)):
        host, device = estimate_zero2_model_states_mem_needs(total, n_processes, 1, on_cpu)
        ours = sizes(config, zero_stage=2, n_processes=n_processes, offload=offload)
        assert ours.model_states_bytes == pytest.approx(device, rel=1e-6)
        assert ours.host_bytes == pytest.approx(host, rel=1e-6)


@pytest.mark.parametrize("n_processes", [1, 2, 8])
@pytest.mark.parametrize("config", [SMOLLM2, LLAMA_8B], ids=["135M", "8B"])
def test_zero_3_states_are_deepspeed_s(n_processes: int, config: dict[str, Any]) -> None:
    shape = read_shape(config)
    assert shape is not None
    for offload, optimizer, parameters in (("none", False, False), ("optimizer", True, False), ("all", True, True)):
        host, device, _ = estimate_zero3_model_states_mem_needs(
            shape.n_parameters, shape.n_largest_module_parameters, n_processes, 1, optimizer, parameters
        )
        ours = sizes(config, zero_stage=3, n_processes=n_processes, offload=offload)
        assert ours.model_states_bytes + ours.buffers_bytes == pytest.approx(device, rel=1e-6)
        assert ours.host_bytes == pytest.approx(host, rel=1e-6)


def test_stages_need_less_and_less() -> None:
    needs = [sizes(zero_stage=stage).model_states_bytes for stage in (0, 1, 2, 3)]
    assert needs == sorted(needs, reverse=True)
    assert len(set(needs)) == 4


def test_adapter_leaves_weights_alone() -> None:
    full, lora = sizes(zero_stage=None), sizes(zero_stage=None, adapter=LoraAdapter())
    assert full.optimizer_bytes == 2 * full.parameters_bytes
    assert lora.optimizer_bytes < full.optimizer_bytes / 100
    assert lora.parameters_bytes < full.parameters_bytes * 1.01


def test_optimizers_differ_in_their_states() -> None:
    adam, eight, plain = (
        sizes(zero_stage=None, dtype="float32", optim=o) for o in ("adamw_torch", "adamw_bnb_8bit", "sgd")
    )
    assert adam.optimizer_bytes == 4 * eight.optimizer_bytes
    assert plain.optimizer_bytes == 0


def saved_bytes(model: Any, ids: torch.Tensor) -> int:
    """Bytes that a forward pass keeps for the backward pass, each storage once, weights left out."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model(input_ids=ids, labels=ids).loss
    assert torch.isfinite(loss)
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "qwen3", "gpt2"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activations_are_near_what_autograd_keeps(name: str, dtype: Any) -> None:
    widths = {"hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4, "num_attention_heads": 4}
    gpt2 = {"n_embd": 128, "n_layer": 4, "n_head": 4, "attn_pdrop": 0.0}
    config = CONFIGS[name] | (gpt2 if name == "gpt2" else widths)
    model = real_model(config, "cpu").to(getattr(torch, dtype)).train()
    batch, length = 2, 64
    real = saved_bytes(model, torch.randint(0, 301, (batch, length)))
    ours = sizes(config, dtype=dtype, per_device_batch=batch, max_length=length)
    assert 0.95 < (ours.activations_bytes + ours.logits_bytes) / real < 1.35


def test_checkpointing_needs_far_less() -> None:
    assert sizes(gradient_checkpointing=True).activations_bytes < sizes().activations_bytes / 8


def test_device_bytes_are_the_sum() -> None:
    found = sizes()
    states = found.parameters_bytes + found.gradients_bytes + found.optimizer_bytes
    assert found.device_bytes == states + found.activations_bytes + found.logits_bytes + found.buffers_bytes


def test_size_alone_gives_the_states() -> None:
    facts: dict[str, Any] = {
        "adapter": None, "dtype": "bfloat16", "zero_stage": 2, "offload": "none", "n_processes": 2, "max_length": 64,
        "per_device_batch": 1, "optim": "adamw_torch", "gradient_checkpointing": False,
    }  # fmt: skip
    found = estimate({"model_type": "mamba"}, 1000, **facts)
    assert found is not None
    assert (found.model_states_bytes, found.activations_bytes) == (2 * 1000 + 9 * 1000, 0)
    assert estimate({"model_type": "mamba"}, None, **facts) is None


def test_checkpoint_holds_weights_and_states() -> None:
    facts: dict[str, Any] = {"dtype": "bfloat16", "optim": "adamw_torch"}
    assert checkpoint_bytes(1000, n_trainable=None, zero_stage=None, **facts) == 6000
    assert checkpoint_bytes(1000, n_trainable=None, zero_stage=2, **facts) == 16000
    assert checkpoint_bytes(1000, n_trainable=10, zero_stage=None, **facts) == 60
