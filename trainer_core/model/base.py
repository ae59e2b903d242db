"""Loads the base model in the precision the run needs. Safetensors only; nothing is fetched for a local folder.

Precision of the weights when `model.dtype` is "auto":
- full fine-tuning: float32 master weights; bf16 or fp16, where asked for, is applied by autocast or by DeepSpeed;
- with an adapter the base is frozen and needs no master copy: bfloat16 where the run computes in bfloat16 and on
  CUDA devices that have it, else float32. Adapter weights themselves are always float32 (PEFT casts them up).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from bitsandbytes.nn import Params4bit
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.utils import logging as transformers_logging

from trainer_core.contract import CauseCode, RunConfig, peft_part
from trainer_core.model.files import read_model_config
from trainer_core.model.quantized import bits_and_bytes
from trainer_core.model.rules import check_run
from trainer_core.run.beginning import Run
from trainer_core.run.faults import Fault

OLD_NAMES = {"LayerNorm.gamma", "LayerNorm.beta"}


def pick_dtype(config: RunConfig) -> torch.dtype:
    """The precision to load the base weights in, by the rule at the top of this file."""
    if config.model.dtype != "auto":
        return getattr(torch, config.model.dtype)
    if peft_part(config.adapter) is None:
        return torch.float32
    cuda_has_bf16 = config.device == "cuda" and torch.cuda.is_bf16_supported()
    if config.training.get("fp16"):
        return torch.float32
    return torch.bfloat16 if config.training.get("bf16") or cuda_has_bf16 else torch.float32


def load_model(run: Run, auto_class: Any = AutoModelForCausalLM) -> PreTrainedModel:
    """The base model on the CPU (or already cut into ZeRO-3 shards, as the TrainingArguments said before).

    A full run that starts from a checkpoint's weights has these in place of the base model's own.
    Raises Fault(model_unavailable) when the files are not there or hold no such model.
    """
    return _load(run, auto_class)[0]


@dataclass(frozen=True)
class Headed:
    """A model with a head for this job's labels."""

    model: PreTrainedModel
    heads: list[str]
    """Modules that are not of the base model, or that its files had no weights for: trained in full beside adapters."""
    notes: list[str]


def load_with_head(run: Run, auto_class: Any, names: Sequence[str], pad_id: int, **options: Any) -> Headed:
    """The base model with a head of one output a name, fresh where the files hold none of this size; the start of
    fresh weights depends on the seed alone. `options` go into the model's config.

    Raises Fault as load_model does.
    """
    torch.manual_seed(run.config.seed)
    label_map = {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}
    model, info = _load(run, auto_class, **label_map, **options, ignore_mismatched_sizes=True, output_loading_info=True)
    fresh = sorted({*info["missing_keys"], *(entry[0] for entry in info["mismatched_keys"])})
    heads = _heads(model, fresh)
    strange = [name for name in fresh if not any(name == head or name.startswith(f"{head}.") for head in heads)]
    if strange:
        raise _unavailable(run, f"its files lack weights of the base model, such as {strange[0]}")
    # A causal model classifies by the last token that is no padding, and knows padding by this id alone.
    model.config.get_text_config().pad_token_id = model.config.pad_token_id = pad_id
    notes = [f"Fresh weights, to be learnt from the rows: {', '.join(fresh)}."] if fresh else []
    return Headed(model, heads, notes)


def _heads(model: PreTrainedModel, fresh: Sequence[str]) -> list[str]:
    """Modules with weights beside the base model, and the pooler, which a language model's files do not hold."""
    prefix = model.base_model_prefix
    beside = [
        name for name, child in model.named_children() if name != prefix and any(True for _ in child.parameters())
    ]
    poolers = {f"{prefix}.pooler" for name in fresh if name.startswith(f"{prefix}.pooler.")}
    return [*beside, *sorted(poolers)]


def _load(run: Run, auto_class: Any, **options: Any) -> Any:
    # A bar a weight file is no use in a log file.
    transformers_logging.disable_progress_bar()
    config = run.config
    check_run(config, read_model_config(config.model))
    weights_from = run.weights_folder if peft_part(config.adapter) is None else None
    source = str(weights_from) if weights_from else config.model.source
    try:
        loaded = auto_class.from_pretrained(
            source,
            revision=None if weights_from else config.model.revision,
            dtype=pick_dtype(config),
            use_safetensors=True,
            local_files_only=Path(source).is_absolute(),
            trust_remote_code=config.model.trust_remote_code,
            **_quantising(config),
            **options,
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise _unavailable(run, f"{source}: {str(error).splitlines()[0][:400]}") from error
    model, info = loaded if isinstance(loaded, tuple) else (loaded, {})
    _forget_old_names(model)
    return model, info


def _quantising(config: RunConfig) -> dict[str, Any]:
    if config.quantization is None:
        return {}
    # Else the layers' numbers would be quantised on the device that another rank has.
    place: Any = torch.cuda.current_device() if config.device == "cuda" else "cpu"
    options = bits_and_bytes(config.quantization, pick_dtype(config))
    return {"quantization_config": options, "device_map": {"": place}}


def _forget_old_names(model: PreTrainedModel) -> None:
    """Under ZeRO-3 transformers 5.24 remembers every renaming it knows, whether the files needed it or not, and saves
    LayerNorm.weight as LayerNorm.gamma; elsewhere it remembers those that the files needed."""
    if is_deepspeed_zero3_enabled() and getattr(model, "_weight_conversions", None):
        kept = [one for one in model._weight_conversions if not OLD_NAMES & set(one.source_patterns)]
        model._weight_conversions = kept or None


def _unavailable(run: Run, what: str) -> Fault:
    return Fault(
        CauseCode.MODEL_UNAVAILABLE,
        f"The model {run.config.model.name!r} could not be loaded from {what}",
        hint="Its folder needs config.json and safetensors weights; a hub model must be reachable from this node.",
        param="model",
    )


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


def _size_and_dtype(parameter: torch.nn.Parameter) -> tuple[int, str]:
    """Numbers that it stands for: a 4-bit weight packs two into a byte."""
    if isinstance(parameter, Params4bit) and parameter.quant_state is not None:
        return 2 * parameter.numel() * parameter.element_size(), str(parameter.quant_state.quant_type)
    size = parameter.ds_numel if hasattr(parameter, "ds_numel") else parameter.numel()
    return int(size), str(parameter.dtype).removeprefix("torch.")


def count_parameters(model: PreTrainedModel) -> dict[str, Any]:
    """trainable, total and by dtype. A ZeRO-3 shard counts with the size of the whole parameter."""
    counts: dict[str, Any] = {"trainable": 0, "total": 0, "by_dtype": {}}
    for parameter in model.parameters():
        size, dtype = _size_and_dtype(parameter)
        counts["total"] += size
        counts["trainable"] += size if parameter.requires_grad else 0
        counts["by_dtype"][dtype] = counts["by_dtype"].get(dtype, 0) + size
    return counts
