"""A job's adapter as PEFT's own configuration; the contract uses PEFT's field names, so little is said anew."""

from __future__ import annotations

from typing import Any

from peft import (
    IA3Config,
    LoraConfig,
    PeftConfig,
    PrefixTuningConfig,
    PromptEncoderConfig,
    PromptTuningConfig,
)
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from trainer_core.contract.adapters import (
    Ia3Adapter,
    LoraAdapter,
    PeftAdapter,
    PrefixTuningAdapter,
    PromptTuningAdapter,
)

CLASSES: dict[str, type[PeftConfig]] = {
    "lora": LoraConfig,
    "ia3": IA3Config,
    "prompt_tuning": PromptTuningConfig,
    "prefix_tuning": PrefixTuningConfig,
    "p_tuning": PromptEncoderConfig,
}
OURS = {"type", "loraplus_lr_ratio"}
"""Fields that are no part of PEFT's configuration."""


def peft_config(
    adapter: PeftAdapter, model: PreTrainedModel, task_type: str = "CAUSAL_LM", tokenizer: str | None = None
) -> PeftConfig:
    """tokenizer  a folder or hub id; prompt tuning's text is made tokens with it."""
    fields: dict[str, Any] = adapter.model_dump(exclude=OURS)
    if isinstance(adapter, Ia3Adapter) and adapter.target_modules is None:
        del fields["target_modules"], fields["feedforward_modules"]
    if isinstance(adapter, PromptTuningAdapter) and adapter.prompt_tuning_init == "TEXT":
        fields["tokenizer_name_or_path"] = tokenizer
    if "encoder_hidden_size" in fields and fields["encoder_hidden_size"] is None:
        fields["encoder_hidden_size"] = _width(adapter, model)
    if isinstance(adapter, LoraAdapter) and adapter.layer_replication is not None:
        fields["layer_replication"] = [list(pair) for pair in adapter.layer_replication]
    if isinstance(adapter, LoraAdapter | Ia3Adapter):
        fields["fan_in_fan_out"] = any(isinstance(module, Conv1D) for module in model.modules())
    return CLASSES[adapter.type](task_type=task_type, **fields)


def _width(adapter: PeftAdapter, model: PreTrainedModel) -> int:
    """The model's, or for prefixes that of keys, which grouped attention makes narrower."""
    config = model.config.get_text_config()
    hidden, heads = int(config.hidden_size), int(config.num_attention_heads)
    if not isinstance(adapter, PrefixTuningAdapter):
        return hidden
    return hidden // heads * int(getattr(config, "num_key_value_heads", None) or heads)
