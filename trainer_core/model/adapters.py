"""Puts a LoRA adapter on a model with PEFT, after checking that it names modules the model has.

Knows PEFT; it knows nothing of training or checkpoints' retention.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import PreTrainedModel

from trainer_core.contract import CauseCode, LoraAdapter
from trainer_core.run.beginning import Run
from trainer_core.run.faults import Fault

ADAPTER_WEIGHTS = "adapter_model.safetensors"


def with_adapter(
    model: PreTrainedModel, run: Run, *, task_type: str = "CAUSAL_LM", heads: Sequence[str] = ()
) -> PreTrainedModel | PeftModel:
    """The model to train: as it is, or with the job's adapter on it, fresh or with a checkpoint's weights.

    heads  modules that are new to the model: with an adapter they are trained and saved in full beside it.
    """
    adapter = run.config.adapter
    if adapter is None:
        return model
    if heads:
        adapter = adapter.model_copy(update={"modules_to_save": sorted({*(adapter.modules_to_save or ()), *heads})})
    recompute = bool(run.args.activation_checkpointing)
    adapted = add_adapter(model, adapter, recompute=recompute, seed=run.config.seed, task_type=task_type)
    if run.weights_folder:
        load_adapter_weights(adapted, run.weights_folder)
    return adapted


def add_adapter(
    model: PreTrainedModel, adapter: LoraAdapter, recompute: bool, seed: int, task_type: str = "CAUSAL_LM"
) -> PeftModel:
    """The model with a fresh adapter, its base frozen. The adapter's start depends on the seed alone.

    recompute  activation checkpointing is on: the frozen embeddings' output must ask for gradients, or none reach
               the adapter through the recomputed blocks.
    Raises Fault(config_invalid) when the adapter does not fit the model, or leaves nothing to train.
    """
    _check_names(model, "adapter.target_modules", adapter.target_modules)
    _check_names(model, "adapter.modules_to_save", adapter.modules_to_save)
    if recompute:
        model.enable_input_require_grads()
    torch.manual_seed(seed)
    try:
        adapted = get_peft_model(model, lora_config(adapter, task_type))
    except ValueError as error:
        raise Fault(
            CauseCode.CONFIG_INVALID,
            f"The adapter does not fit the model: {str(error).splitlines()[0][:400]}",
            hint="Name linear modules of the model, or use all-linear.",
            param="adapter",
        ) from error
    if not any(parameter.requires_grad for parameter in adapted.parameters()):
        raise Fault(
            CauseCode.CONFIG_INVALID,
            "The adapter leaves no parameter to train.",
            hint="Widen target_modules or layers_to_transform, or narrow exclude_modules.",
            param="adapter",
        )
    return adapted


def lora_config(adapter: LoraAdapter, task_type: str = "CAUSAL_LM") -> LoraConfig:
    """PEFT's own configuration; the contract uses its field names, so only the type is dropped."""
    fields: dict[str, Any] = adapter.model_dump(exclude={"type"})
    return LoraConfig(task_type=task_type, **fields)


def load_adapter_weights(model: PeftModel, checkpoint: Path) -> None:
    """Replace the adapter's weights by those of a checkpoint folder.

    Raises Fault(checkpoint_invalid) when the checkpoint holds another adapter's weights.
    """
    weights = load_file(checkpoint / ADAPTER_WEIGHTS)
    try:
        outcome = set_peft_model_state_dict(model, weights)
    except (RuntimeError, ValueError, KeyError) as error:
        raise _another_adapter(str(error).splitlines()[0]) from error
    missing = [name for name in outcome.missing_keys if "lora_" in name]
    if outcome.unexpected_keys or missing:
        raise _another_adapter(f"{len(outcome.unexpected_keys)} unknown and {len(missing)} missing tensors")


def _another_adapter(found: str) -> Fault:
    return Fault(
        CauseCode.CHECKPOINT_INVALID,
        f"The checkpoint's adapter does not fit this job's adapter: {found}",
        hint="Use the same r, target_modules and modules_to_save as the run that saved it.",
        param="resume",
    )


def _check_names(model: PreTrainedModel, param: str, wanted: Iterable[str] | str | None) -> None:
    """Every name must be a module's full name or its end, as PEFT matches them."""
    if wanted is None or isinstance(wanted, str):
        return
    names = [name for name, _ in model.named_modules() if name]
    for target in wanted:
        if any(name == target or name.endswith(f".{target}") for name in names):
            continue
        ends = sorted({name.rsplit(".", 1)[-1] for name in names if not name.rsplit(".", 1)[-1].isdigit()})
        near = difflib.get_close_matches(target, ends, n=3, cutoff=0.5) or ends[:20]
        raise Fault(
            CauseCode.CONFIG_INVALID,
            f"The model has no module named {target!r}.",
            hint=f"Nearest names: {', '.join(near)}.",
            param=param,
            details={"asked": target, "nearest": near},
        )
