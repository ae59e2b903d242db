"""Makes of a model what the job trains: with an adapter of PEFT's on it, some blocks alone, or all of it.

Knows PEFT; it knows nothing of training or checkpoints' retention.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from peft import PeftModel, get_peft_model, set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import PreTrainedModel

from trainer_core.contract import CauseCode
from trainer_core.contract.adapters import (
    FreezeAdapter,
    Ia3Adapter,
    LoraAdapter,
    PeftAdapter,
)
from trainer_core.model.adapter_names import check_all_names
from trainer_core.model.freeze import freeze
from trainer_core.model.peft_configs import peft_config
from trainer_core.model.prompts import restore_prompt_encoder
from trainer_core.model.quantized import is_quantised, prepare
from trainer_core.run.beginning import Run
from trainer_core.run.faults import Fault

ADAPTER_WEIGHTS = "adapter_model.safetensors"


def with_adapter(
    model: PreTrainedModel, run: Run, *, task_type: str = "CAUSAL_LM", heads: Sequence[str] = ()
) -> PreTrainedModel | PeftModel:
    """The model to train: as it is, with some blocks alone, or with the job's adapter on it, fresh or with a
    checkpoint's weights.

    heads  modules that are new to the model: with an adapter they are trained and saved in full beside it.
    """
    adapter = run.config.adapter
    if adapter is None:
        return model
    if isinstance(adapter, FreezeAdapter):
        return freeze(model, adapter, heads)
    if heads and isinstance(adapter, LoraAdapter | Ia3Adapter):
        adapter = adapter.model_copy(update={"modules_to_save": sorted({*(adapter.modules_to_save or ()), *heads})})
    recompute = bool(run.args.activation_checkpointing)
    tokenizer = run.config.model.source
    adapted = add_adapter(
        model, adapter, recompute=recompute, seed=run.config.seed, task_type=task_type, tokenizer=tokenizer
    )
    if run.weights_folder:
        load_adapter_weights(adapted, run.weights_folder)
    return adapted


def add_adapter(
    model: PreTrainedModel,
    adapter: PeftAdapter,
    recompute: bool,
    seed: int,
    task_type: str = "CAUSAL_LM",
    tokenizer: str | None = None,
) -> PeftModel:
    """The model with a fresh adapter, its base frozen. The adapter's start depends on the seed alone.

    recompute  activation checkpointing is on: the frozen embeddings' output must ask for gradients, or none reach
               the adapter through the recomputed blocks.
    tokenizer  where prompt tuning's text is made tokens.
    Raises Fault(config_invalid) when the adapter does not fit the model, or leaves nothing to train.
    """
    if is_quantised(model):
        prepare(model)
    check_all_names(model, adapter)
    if recompute:
        model.enable_input_require_grads()
    torch.manual_seed(seed)
    try:
        adapted = get_peft_model(model, peft_config(adapter, model, task_type, tokenizer))
    except (ValueError, TypeError, RuntimeError, KeyError) as error:
        raise Fault(
            CauseCode.CONFIG_INVALID,
            f"The adapter does not fit the model: {(str(error).splitlines() or ['unknown'])[0][:400]}",
            hint="Name modules that the adapter's type can take, such as all-linear for LoRA.",
            param="adapter",
        ) from error
    for parameter in adapted.parameters():  # learnt prompts that start as a 16-bit model's embeddings
        if parameter.requires_grad and parameter.dtype in (torch.float16, torch.bfloat16):
            parameter.data = parameter.data.float()
    if not any(parameter.requires_grad for parameter in adapted.parameters()):
        raise Fault(
            CauseCode.CONFIG_INVALID,
            "The adapter leaves no parameter to train.",
            hint="Widen target_modules or layers_to_transform, or narrow exclude_modules.",
            param="adapter",
        )
    return adapted


def load_adapter_weights(model: PeftModel, checkpoint: Path) -> None:
    """Replace the adapter's weights by those of a checkpoint folder.

    Raises Fault(checkpoint_invalid) when the checkpoint holds another adapter's weights.
    """
    weights = load_file(checkpoint / ADAPTER_WEIGHTS)
    if restore_prompt_encoder(model, checkpoint):
        return
    try:
        outcome = set_peft_model_state_dict(model, weights)
    except (RuntimeError, ValueError, KeyError) as error:
        raise _another_adapter(str(error).splitlines()[0]) from error
    missing = [name for name in outcome.missing_keys if "lora_" in name or "ia3_" in name]
    if outcome.unexpected_keys or missing:
        raise _another_adapter(f"{len(outcome.unexpected_keys)} unknown and {len(missing)} missing tensors")


def _another_adapter(found: str) -> Fault:
    return Fault(
        CauseCode.CHECKPOINT_INVALID,
        f"The checkpoint's adapter does not fit this job's adapter: {found}",
        hint="Use the same r, target_modules and modules_to_save as the run that saved it.",
        param="resume",
    )
