"""The base of an adapter in few bits: bitsandbytes' configuration, and PEFT's preparation for training on it."""

from __future__ import annotations

from typing import Any

import torch
from bitsandbytes.nn import Linear4bit
from peft import prepare_model_for_kbit_training
from transformers import BitsAndBytesConfig, PreTrainedModel

from trainer_core.contract.quantization import Quantization


def bits_and_bytes(quantization: Quantization, dtype: torch.dtype) -> BitsAndBytesConfig:
    """How transformers quantises the weights as it loads them. `dtype` is that of the weights left as they are."""
    # transformers leaves the output layer alone only where no other module is named.
    skipped = [*quantization.skip_modules, "lm_head"] if quantization.skip_modules else None
    if quantization.bits == "int8":
        return BitsAndBytesConfig(
            load_in_8bit=True,
            llm_int8_threshold=quantization.llm_int8_threshold or 6.0,
            llm_int8_skip_modules=skipped,
        )
    named = quantization.compute_dtype not in (None, "auto")
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=quantization.bits,
        bnb_4bit_use_double_quant=quantization.double_quant is not False,
        bnb_4bit_compute_dtype=getattr(torch, str(quantization.compute_dtype)) if named else dtype,
        llm_int8_skip_modules=skipped,
    )


def is_quantised(model: PreTrainedModel) -> bool:
    return bool(getattr(model, "is_quantized", False))


def prepare(model: PreTrainedModel) -> PreTrainedModel:
    """Norms, embeddings and output layer in float32 and all frozen (QLoRA); recomputing is the Trainer's business."""
    keep_packing(model)
    prepared: Any = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return prepared


def keep_packing(model: PreTrainedModel) -> None:
    """On CPUs with bfloat16 instructions bitsandbytes packs 4-bit weights anew at the first evaluation, with scales cut
    to bfloat16: the base would change under the adapter, and narrow layers fail (bitsandbytes 0.50)."""
    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.support_avx512bf16_for_cpu = False


def dequantise(model: PreTrainedModel) -> PreTrainedModel:
    """The same numbers as plain float32 weights: what an adapter trained on the quantised base is merged into."""
    plain: Any = model.dequantize(dtype=torch.float32)
    return plain.float()
