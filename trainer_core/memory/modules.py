"""The modules of a model by name, as PEFT will meet them, read off its config.json alone.

Pure and torch-free; for model types that `shape` does not know there is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trainer_core.memory.shape import Shape, read_shape

_PLAIN = re.compile(r"[\w.]+")


@dataclass(frozen=True)
class Module:
    """A module with weights of its own. Sizes in elements; an embedding maps its rows onto its width."""

    name: str
    kind: Literal["linear", "embedding", "norm"]
    n_in: int
    n_out: int
    bias: bool = False

    @property
    def n_parameters(self) -> int:
        if self.kind == "norm":
            return self.n_out * (2 if self.bias else 1)
        return self.n_in * self.n_out + (self.n_out if self.bias else 0)


def read_modules(model_config: Mapping[str, Any]) -> list[Module] | None:
    """In the model's order, the output layer last; null for a model type that is not known."""
    shape = read_shape(model_config)
    if shape is None:
        return None
    is_gpt2 = model_config.get("model_type") == "gpt2"
    return list(_gpt2(shape, model_config) if is_gpt2 else _llama(shape, model_config))


def matches(name: str, wanted: Iterable[str] | str) -> bool:
    """PEFT's rule: a list holds whole names or their ends, a text is a pattern for the whole name."""
    if isinstance(wanted, str):
        return re.fullmatch(wanted, name) is not None
    return any(name == one or name.endswith(f".{one}") for one in wanted)


def is_plain(pattern: str) -> bool:
    """Whether it is a name rather than a pattern, which the service never runs: it may take for ever."""
    return _PLAIN.fullmatch(pattern) is not None


def block_of(name: str) -> int | None:
    """Number of the block a module stands in; null beside the blocks."""
    found = re.search(r"\.(?:layers|h)\.(\d+)\.", name)
    return int(found[1]) if found else None


def all_names(modules: Iterable[Module]) -> set[str]:
    """The modules' own names and those that hold them, as PEFT may be given either."""
    names = set()
    for module in modules:
        parts = module.name.split(".")
        names |= {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
    return names


def _llama(shape: Shape, config: Mapping[str, Any]) -> Iterator[Module]:
    hidden = shape.hidden
    has_head_norms = config["model_type"] == "qwen3"
    head = shape.q_width // config["num_attention_heads"]
    yield Module("model.embed_tokens", "embedding", shape.vocabulary, hidden)
    for index in range(shape.n_layers):
        block = f"model.layers.{index}"
        for linear in shape.linears:
            inner = "mlp" if linear.name in ("gate_proj", "up_proj", "down_proj") else "self_attn"
            yield Module(f"{block}.{inner}.{linear.name}", "linear", linear.n_in, linear.n_out, linear.bias)
        if has_head_norms:
            yield Module(f"{block}.self_attn.q_norm", "norm", head, head)
            yield Module(f"{block}.self_attn.k_norm", "norm", head, head)
        yield Module(f"{block}.input_layernorm", "norm", hidden, hidden)
        yield Module(f"{block}.post_attention_layernorm", "norm", hidden, hidden)
    yield Module("model.norm", "norm", hidden, hidden)
    yield Module("lm_head", "linear", hidden, shape.vocabulary)


def _gpt2(shape: Shape, config: Mapping[str, Any]) -> Iterator[Module]:
    hidden = shape.hidden
    yield Module("transformer.wte", "embedding", shape.vocabulary, hidden)
    yield Module("transformer.wpe", "embedding", config["n_positions"], hidden)
    for index in range(shape.n_layers):
        block = f"transformer.h.{index}"
        yield Module(f"{block}.ln_1", "norm", hidden, hidden, bias=True)
        yield Module(f"{block}.ln_2", "norm", hidden, hidden, bias=True)
        for linear in shape.linears:
            yield Module(f"{block}.{linear.name}", "linear", linear.n_in, linear.n_out, linear.bias)
    yield Module("transformer.ln_f", "norm", hidden, hidden, bias=True)
    yield Module("lm_head", "linear", hidden, shape.vocabulary)
