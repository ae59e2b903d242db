"""How many parameters an adapter trains, from the model's config alone; null where that cannot be told, never a guess.

Pure and torch-free; a test compares every type with what PEFT really trains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainer_core.contract.adapters import (
    AnyAdapter,
    FreezeAdapter,
    Ia3Adapter,
    LoraAdapter,
    PrefixTuningAdapter,
    PTuningAdapter,
)
from trainer_core.memory.modules import Module, block_of, is_plain, matches, read_modules
from trainer_core.memory.shape import Shape, read_shape

_LLAMA_IA3 = ("k_proj", "v_proj", "down_proj"), ("down_proj",)
_QWEN_IA3 = ("q_proj", "v_proj", "down_proj"), ("down_proj",)
IA3_DEFAULTS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "llama": _LLAMA_IA3,
    "mistral": _LLAMA_IA3,
    "qwen2": _QWEN_IA3,
    "qwen3": _QWEN_IA3,
    "gpt2": (("c_attn", "mlp.c_proj"), ("mlp.c_proj",)),
}
"""Model type -> PEFT's target_modules and feedforward_modules where a job names none."""


def count_trained(model_config: Mapping[str, Any], adapter: AnyAdapter) -> int | None:
    """Null for an unknown model type, and where names are given as patterns."""
    shape, modules = read_shape(model_config), read_modules(model_config)
    if shape is None or modules is None:
        return None
    if isinstance(adapter, LoraAdapter):
        return _lora(adapter, modules, shape)
    if isinstance(adapter, Ia3Adapter):
        return _ia3(adapter, modules, str(model_config.get("model_type")))
    if isinstance(adapter, FreezeAdapter):
        return _freeze(adapter, modules, shape)
    if isinstance(adapter, PrefixTuningAdapter):
        return _prefix(adapter, shape)
    if isinstance(adapter, PTuningAdapter):
        return _p_tuning(adapter, shape)
    return adapter.num_virtual_tokens * shape.hidden


def targets(adapter: LoraAdapter | Ia3Adapter, modules: Sequence[Module], wanted: Sequence[str]) -> list[Module]:
    """The modules that PEFT adapts, by its own rule for names."""
    excluded = adapter.exclude_modules or ()
    chosen = [one for one in modules if matches(one.name, wanted) and not matches(one.name, excluded)]
    only = adapter.layers_to_transform if isinstance(adapter, LoraAdapter) else None
    if only is None:
        return chosen
    numbers = {only} if isinstance(only, int) else set(only)
    return [one for one in chosen if block_of(one.name) in numbers]


def _lora(adapter: LoraAdapter, modules: Sequence[Module], shape: Shape) -> int | None:
    """r (n_in + n_out) for each adapted layer (Hu et al., "LoRA", 2021, section 4.1), and what is trained beside it."""
    names = adapter.target_modules
    if names == "all-linear":
        names = [one.name for one in modules if one.kind == "linear" and one.name != "lm_head"]
    patterns = [*adapter.rank_pattern, *([adapter.layers_pattern] if isinstance(adapter.layers_pattern, str) else ())]
    if isinstance(names, str) or isinstance(adapter.exclude_modules, str) or adapter.target_parameters:
        return None
    if not all(is_plain(pattern) for pattern in patterns):
        return None
    modules = _replicated(adapter, modules)
    if adapter.target_modules == "all-linear":
        names = [one.name for one in modules if one.kind == "linear" and one.name != "lm_head"]
    adapted = targets(adapter, modules, names)
    total = sum(_matrices(adapter, one) for one in adapted)
    if adapter.bias != "none":
        with_bias = modules if adapter.bias == "all" else adapted
        total += sum(one.n_out for one in with_bias if one.bias)
    return total + _whole(adapter.modules_to_save, modules) + _tokens(adapter, shape)


def _replicated(adapter: LoraAdapter, modules: Sequence[Module]) -> list[Module]:
    """The deeper stack that layer_replication makes, each block with an adapter of its own."""
    if adapter.layer_replication is None:
        return list(modules)
    order = [index for start, end in adapter.layer_replication for index in range(start, end)]
    found = [one for one in modules if block_of(one.name) is None]
    for place, index in enumerate(order):
        blocks = (one for one in modules if block_of(one.name) == index)
        found += [
            Module(one.name.replace(f".{index}.", f".{place}.", 1), one.kind, one.n_in, one.n_out, one.bias)
            for one in blocks
        ]
    return found


def _matrices(adapter: LoraAdapter, module: Module) -> int:
    rank = next((r for name, r in adapter.rank_pattern.items() if matches(module.name, [name])), adapter.r)
    n_in, n_out = module.n_in, module.n_out
    if adapter.init_lora_weights == "mica":  # B stands still
        return rank * n_in
    extra = (n_out if adapter.use_dora else 0) + (n_out if adapter.lora_bias else 0)
    return rank * (n_in + n_out) + extra


def _tokens(adapter: LoraAdapter, shape: Shape) -> int:
    wanted = adapter.trainable_token_indices or []
    lists = wanted.values() if isinstance(wanted, dict) else [wanted]
    return sum(len(set(ids)) for ids in lists) * shape.hidden


def _whole(names: Sequence[str] | None, modules: Sequence[Module]) -> int:
    """Modules trained in full, by PEFT's looser rule: whatever's name ends so."""
    wanted = tuple(names or ())
    return sum(one.n_parameters for one in modules if _is_within(one.name, wanted))


def _is_within(name: str, wanted: Sequence[str]) -> bool:
    parts = name.split(".")
    holders = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return any(holder.endswith(one) for holder in holders for one in wanted)


def _ia3(adapter: Ia3Adapter, modules: Sequence[Module], model_type: str) -> int | None:
    names, forward = adapter.target_modules, adapter.feedforward_modules
    if names is None or forward is None:
        if model_type not in IA3_DEFAULTS:
            return None
        names, forward = (list(found) for found in IA3_DEFAULTS[model_type])
    if isinstance(names, str) or isinstance(adapter.exclude_modules, str):
        return None
    adapted = targets(adapter, modules, names)
    factors = sum(one.n_in if matches(one.name, forward) else one.n_out for one in adapted)
    return factors + _whole(adapter.modules_to_save, modules)


def _freeze(adapter: FreezeAdapter, modules: Sequence[Module], shape: Shape) -> int:
    n = min(adapter.trainable_layers, shape.n_layers)
    numbers = range(shape.n_layers - n, shape.n_layers) if adapter.side == "last" else range(n)
    total = n * shape.n_block_parameters if numbers else 0
    outer = [one for one in modules if block_of(one.name) is None]
    if adapter.train_embeddings:
        total += sum(one.n_parameters for one in outer if one.kind == "embedding" and one.name != "transformer.wpe")
    if adapter.train_head:
        heads = [one for one in outer if one.kind == "norm" or (one.name == "lm_head" and not shape.is_tied)]
        total += sum(one.n_parameters for one in heads)
    return total


def _prefix(adapter: PrefixTuningAdapter, shape: Shape) -> int:
    n, width = adapter.num_virtual_tokens, shape.kv_width
    both = shape.n_layers * 2 * width
    if not adapter.prefix_projection:
        return n * both
    inner = adapter.encoder_hidden_size or width
    return n * width + width * inner + inner + inner * both + both


def _p_tuning(adapter: PTuningAdapter, shape: Shape) -> int:
    width = shape.hidden
    inner = adapter.encoder_hidden_size or width
    embedding = adapter.num_virtual_tokens * width
    if adapter.encoder_reparameterization_type == "MLP":
        return embedding + (width + 1) * inner + (inner + 1) * inner + (inner + 1) * width
    lstm, n_in = 0, width
    for _ in range(adapter.encoder_num_layers):  # both directions, four gates, two biases
        lstm += 2 * (4 * inner * (n_in + inner) + 8 * inner)
        n_in = 2 * inner
    return embedding + lstm + (2 * inner + 1) * 2 * inner + (2 * inner + 1) * width
