"""Loads the base model in the precision the run needs. Safetensors only; nothing is fetched for a local folder.

Precision of the weights when `model.dtype` is "auto":
- full fine-tuning: float32 master weights; bf16 or fp16, where asked for, is applied by autocast or by DeepSpeed;
- with an adapter the base is frozen and needs no master copy: bfloat16 where the run computes in bfloat16 and on
  CUDA devices that have it, else float32. Adapter weights themselves are always float32 (PEFT casts them up).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from trainer_core.contract import CauseCode, RunConfig
from trainer_core.faults import Fault


def pick_dtype(config: RunConfig) -> torch.dtype:
    """The precision to load the base weights in, by the rule at the top of this file."""
    if config.model.dtype != "auto":
        return getattr(torch, config.model.dtype)
    if config.adapter is None:
        return torch.float32
    cuda_has_bf16 = config.device == "cuda" and torch.cuda.is_bf16_supported()
    if config.training.get("fp16"):
        return torch.float32
    return torch.bfloat16 if config.training.get("bf16") or cuda_has_bf16 else torch.float32


def load_model(config: RunConfig, weights_from: Path | None = None) -> PreTrainedModel:
    """The base model on the CPU (or already cut into ZeRO-3 shards, if the TrainingArguments said so before).

    weights_from is a checkpoint folder with full weights that takes the place of the base model's own.
    Raises Fault(model_unavailable) when the files are not there or hold no such model.
    """
    # A bar a weight file is no use in a log file.
    transformers_logging.disable_progress_bar()
    source = str(weights_from) if weights_from else config.model.source
    try:
        model = AutoModelForCausalLM.from_pretrained(
            source,
            revision=None if weights_from else config.model.revision,
            dtype=pick_dtype(config),
            use_safetensors=True,
            local_files_only=Path(source).is_absolute(),
            trust_remote_code=config.model.trust_remote_code,
        )
    except (OSError, ValueError, KeyError) as error:
        raise Fault(
            CauseCode.MODEL_UNAVAILABLE,
            f"The model {config.model.name!r} could not be loaded from {source}: {str(error).splitlines()[0][:400]}",
            hint="Its folder needs config.json and safetensors weights; a hub model must be reachable from this node.",
            param="model",
        ) from error
    return model


def check_vocabulary(model: PreTrainedModel, n_tokens: int) -> None:
    """Raises Fault(config_invalid) if the tokenizer has ids that the model has no embedding for."""
    n_rows = model.config.get_text_config().vocab_size
    if n_tokens > n_rows:
        raise Fault(
            CauseCode.CONFIG_INVALID,
            f"The tokenizer has {n_tokens} tokens and the model has embeddings for {n_rows}.",
            hint="Register a model whose embeddings were resized for its tokenizer.",
            param="model",
        )


def count_parameters(model: PreTrainedModel) -> dict[str, Any]:
    """trainable, total and by dtype. A ZeRO-3 shard counts with the size of the whole parameter."""
    counts: dict[str, Any] = {"trainable": 0, "total": 0, "by_dtype": {}}
    for parameter in model.parameters():
        size = parameter.ds_numel if hasattr(parameter, "ds_numel") else parameter.numel()
        counts["total"] += size
        counts["trainable"] += size if parameter.requires_grad else 0
        dtype = str(parameter.dtype).removeprefix("torch.")
        counts["by_dtype"][dtype] = counts["by_dtype"].get(dtype, 0) + size
    return counts
