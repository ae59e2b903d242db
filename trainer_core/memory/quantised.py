"""Bytes of a base whose linear layers bitsandbytes holds in few bits. Pure and torch-free.

4 bits: half a byte a number and a float32 scale for each 64; with double quantisation these are a byte each and a
float32 for each 256 of them (Dettmers et al., "QLoRA", 2023, section 3). 8 bits: a byte a number and a float32 scale a
row. All else is float32 once PEFT has prepared it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer_core.contract.quantization import Quantization
from trainer_core.memory.shape import Shape

BLOCK, SECOND_BLOCK = 64, 256


def quantization_of(asked: Quantization | None, model_config: Mapping[str, Any]) -> Quantization | None:
    """What the job asks for, or what the model's own files say where bitsandbytes wrote them."""
    stored = model_config.get("quantization_config")
    if asked is not None or not isinstance(stored, Mapping):
        return asked
    if stored.get("load_in_8bit"):
        return Quantization(bits="int8")
    if stored.get("load_in_4bit"):
        bits = "fp4" if stored.get("bnb_4bit_quant_type") == "fp4" else "nf4"
        return Quantization(bits=bits, double_quant=bool(stored.get("bnb_4bit_use_double_quant")))
    return None


def quantised_bytes(shape: Shape | None, n_parameters: int, quantization: Quantization) -> float:
    """Of the whole base. For a model type that is not known all of it is taken for linear layers."""
    if shape is None:
        return n_parameters * _bytes_each(quantization)
    skipped = set(quantization.skip_modules or ())
    linears = [one for one in shape.linears if one.name.rpartition(".")[2] not in skipped]
    numbers = shape.n_layers * sum(one.n_in * one.n_out for one in linears)
    rows = shape.n_layers * sum(one.n_out for one in linears) if quantization.bits == "int8" else 0
    return numbers * _bytes_each(quantization) + 4 * rows + 4 * (n_parameters - numbers)


def _bytes_each(quantization: Quantization) -> float:
    if quantization.bits == "int8":
        return 1.0
    if quantization.double_quant is False:
        return 0.5 + 4 / BLOCK
    return 0.5 + 1 / BLOCK + 4 / (BLOCK * SECOND_BLOCK)
