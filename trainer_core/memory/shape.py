"""The shape of a model read off its config.json alone: linear layers and parameters.

Knows the Llama family (Llama, Mistral, Qwen2, Qwen3, SmolLM) and GPT-2; for others the answers are null, never a
guess. Pure and torch-free; tests compare with the real models on the meta device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LLAMA_FAMILY = frozenset({"llama", "mistral", "qwen2", "qwen3", "smollm3"})


@dataclass(frozen=True)
class Linear:
    """One linear layer of a block; a block holds one of each name."""

    name: str
    n_in: int
    n_out: int
    bias: bool

    @property
    def n_parameters(self) -> int:
        return self.n_in * self.n_out + (self.n_out if self.bias else 0)


@dataclass(frozen=True)
class Shape:
    """What counts for memory. Sizes in elements."""

    hidden: int
    n_layers: int
    vocabulary: int
    intermediate: int
    kv_width: int
    q_width: int
    is_gated: bool
    is_tied: bool
    linears: tuple[Linear, ...]
    """Of one block."""
    n_norm_parameters: int
    """Of one block."""
    n_outer_parameters: int
    """Embeddings, last norm, and the output layer where it is not tied."""

    @property
    def n_block_parameters(self) -> int:
        return sum(linear.n_parameters for linear in self.linears) + self.n_norm_parameters

    @property
    def n_parameters(self) -> int:
        return self.n_layers * self.n_block_parameters + self.n_outer_parameters

    @property
    def n_largest_module_parameters(self) -> int:
        """Parameters of the largest module, as DeepSpeed's estimator for ZeRO-3 means it: gathered as a whole."""
        return max(self.vocabulary * self.hidden, *(linear.n_parameters for linear in self.linears))


def read_shape(model_config: Mapping[str, Any]) -> Shape | None:
    """The shape from a config.json, or null for a model type that is not known here."""
    model_type = model_config.get("model_type")
    try:
        if model_type in LLAMA_FAMILY:
            return _llama(model_config, str(model_type))
        if model_type == "gpt2":
            return _gpt2(model_config)
    except (KeyError, TypeError):
        # A config.json without the numbers its type must have: the model itself will say so when it is loaded.
        return None
    return None


def count_parameters(model_config: Mapping[str, Any]) -> int | None:
    """Parameters of the model, tied weights once; null where the type is not known."""
    shape = read_shape(model_config)
    return None if shape is None else shape.n_parameters


def _llama(config: Mapping[str, Any], model_type: str) -> Shape:
    hidden, n_layers, heads = config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    default_head = 128 if model_type == "qwen3" else hidden // heads
    head = config.get("head_dim") or default_head
    q_width, kv_width, intermediate = heads * head, kv_heads * head, config["intermediate_size"]
    bias = bool(config.get("attention_bias", False))
    qkv_bias = True if model_type == "qwen2" else bias
    # Qwen2's output projection has no bias; Llama and Qwen3 follow attention_bias; Mistral has none anywhere.
    out_bias = bias and model_type not in ("qwen2", "mistral")
    qkv_bias = qkv_bias and model_type != "mistral"
    mlp_bias = bool(config.get("mlp_bias", False)) and model_type in ("llama", "smollm3")
    linears = (
        Linear("q_proj", hidden, q_width, qkv_bias),
        Linear("k_proj", hidden, kv_width, qkv_bias),
        Linear("v_proj", hidden, kv_width, qkv_bias),
        Linear("o_proj", q_width, hidden, out_bias),
        Linear("gate_proj", hidden, intermediate, mlp_bias),
        Linear("up_proj", hidden, intermediate, mlp_bias),
        Linear("down_proj", intermediate, hidden, mlp_bias),
    )
    norms = 2 * hidden + (2 * head if model_type == "qwen3" else 0)
    vocabulary = config["vocab_size"]
    is_tied = bool(config.get("tie_word_embeddings", model_type == "smollm3"))
    outer = vocabulary * hidden * (1 if is_tied else 2) + hidden
    return Shape(hidden, n_layers, vocabulary, intermediate, kv_width, q_width, True, is_tied, linears, norms, outer)


def _gpt2(config: Mapping[str, Any]) -> Shape:
    hidden, n_layers, vocabulary = config["n_embd"], config["n_layer"], config["vocab_size"]
    inner = config.get("n_inner") or 4 * hidden
    linears = (
        Linear("attn.c_attn", hidden, 3 * hidden, True),
        Linear("attn.c_proj", hidden, hidden, True),
        Linear("mlp.c_fc", hidden, inner, True),
        Linear("mlp.c_proj", inner, hidden, True),
    )
    is_tied = bool(config.get("tie_word_embeddings", True))
    outer = vocabulary * hidden * (1 if is_tied else 2) + config["n_positions"] * hidden + 2 * hidden
    return Shape(hidden, n_layers, vocabulary, inner, hidden, hidden, False, is_tied, linears, 4 * hidden, outer)
