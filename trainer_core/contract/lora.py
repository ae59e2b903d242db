"""LoRA as a job asks for it: PEFT's own field names, and the fields of PEFT that are refused, each with its reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from trainer_core.contract.job import FieldName
from trainer_core.frozen import Frozen
from trainer_core.numbers import (
    Fraction,
    NonNegativeWholeNumber,
    Number,
    PositiveNumber,
    PositiveWholeNumber,
)


def _regexp(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"expected a list of names or a regular expression, found neither ({error})") from None
    return text


Pattern = Annotated[str, StringConstraints(min_length=1, max_length=1000), AfterValidator(_regexp)]
"""A regular expression that must match a module's whole name, as PEFT takes a text in place of a list."""
PissaIterations = Annotated[str, StringConstraints(pattern=r"^pissa_niter_[0-9]{1,3}$")]
CHANGES_BASE = ("pissa", "olora")
"""Starts that take the adapter's first product out of the base's weights."""

OWNED_BY_PEFT: dict[str, str] = {
    "task_type": "follows from the method",
    "peft_type": "is what `type` says",
    "auto_mapping": "is written by PEFT itself",
    "peft_version": "is written by PEFT itself",
    "base_model_name_or_path": "is the job's model",
    "revision": "is the registered model's revision",
    "inference_mode": "would leave nothing to train",
}


class LoraAdapter(Frozen):
    """LoRA, with PEFT's own field names (https://huggingface.co/docs/peft/package_reference/lora)."""

    refused: ClassVar[Mapping[str, str]] = OWNED_BY_PEFT | {
        "fan_in_fan_out": "is read off each layer's type by PEFT (true for GPT-2's Conv1D)",
        "megatron_config": "serves Megatron's parallel layers, and models are loaded by transformers here",
        "megatron_core": "serves Megatron's parallel layers, and models are loaded by transformers here",
        "loftq_config": "rounds the base by itself; set `quantization` for a quantised base",
        "eva_config": "reads activations over the rows before the first step; use init_lora_weights pissa or olora",
        "corda_config": "reads activations over the rows before the first step; use init_lora_weights pissa or olora",
        "lora_ga_config": "reads gradients over the rows before the first step; use init_lora_weights pissa or olora",
        "velora_config": "takes its projection from the first batch, which a resumed run would not see again",
        "alora_invocation_tokens": "acts only after a text that every row must hold; train without it",
        "use_qalora": "is for GPTQ layers alone, and PEFT leaves it out in silence elsewhere",
        "qalora_group_size": "is for GPTQ layers alone, and PEFT leaves it out in silence elsewhere",
        "monteclora_config": "needs a loss term of its own, which no method here has",
        "runtime_config": "is never saved, so a loaded adapter would act otherwise; parallel.offload moves optimizers",
        "use_bdlora": "shapes an adapter for one inference engine's shards; train a plain one",
        "arrow_config": "routes between finished adapters and trains none",
        "kasa_config": "needs a loss term of its own, which no method here has",
    }

    type: Literal["lora"] = "lora"
    r: Annotated[PositiveWholeNumber, Field(le=4096, description="Rank of the update matrices.")] = 8
    lora_alpha: Annotated[PositiveNumber, Field(description="Scale; the update is multiplied by lora_alpha / r.")] = 16
    lora_dropout: Annotated[Fraction, Field(description="Dropout on the adapter's input.")] = 0.0
    target_modules: Annotated[
        list[FieldName] | Literal["all-linear"] | Pattern,
        Field(description="Names of the linear modules to adapt, a pattern, or all-linear: all but the output layer."),
    ] = "all-linear"
    exclude_modules: Annotated[list[FieldName] | Pattern | None, Field(description="Names left as they are.")] = None
    bias: Literal["none", "all", "lora_only"] = Field(default="none", description="Biases of the model to train.")
    use_rslora: bool = Field(default=False, description="Scale by lora_alpha / sqrt(r) instead.")
    use_dora: bool = Field(default=False, description="Weight-decomposed LoRA.")
    lora_bias: bool = Field(default=False, description="A bias beside lora_B.")
    modules_to_save: list[FieldName] | None = Field(default=None, description="Modules trained and saved in full.")
    trainable_token_indices: Annotated[
        list[NonNegativeWholeNumber] | dict[FieldName, list[NonNegativeWholeNumber]] | None,
        Field(description="Token ids whose embeddings are trained, or a list for each embedding module's name."),
    ] = None
    target_parameters: list[FieldName] | None = Field(
        default=None, description="Names of bare parameters to adapt (experts); target_modules is then [] by default."
    )
    ensure_weight_tying: bool = Field(
        default=False, description="Keep tied embeddings tied where either of them is trained."
    )
    layers_to_transform: list[NonNegativeWholeNumber] | NonNegativeWholeNumber | None = None
    layers_pattern: Annotated[
        list[FieldName] | FieldName | None, Field(description="Name of the list of blocks, such as layers.")
    ] = None
    layer_replication: Annotated[
        list[tuple[NonNegativeWholeNumber, PositiveWholeNumber]] | None,
        Field(min_length=1, description="Ranges of blocks, [start, end), that a deeper model is stacked of."),
    ] = None
    rank_pattern: dict[str, PositiveWholeNumber] = Field(default_factory=dict)
    alpha_pattern: dict[str, Number] = Field(default_factory=dict)
    init_lora_weights: bool | Literal["gaussian", "pissa", "olora", "orthogonal", "mica"] | PissaIterations = True
    loraplus_lr_ratio: Annotated[
        Annotated[PositiveNumber, Field(ge=1, le=1000)] | None,
        Field(description="LoRA+: lora_B learns at this many times the learning rate. null: plain LoRA."),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _parameters_stand_alone(cls, value: Any) -> Any:
        """PEFT's own default modules would be adapted twice."""
        if isinstance(value, Mapping) and value.get("target_parameters") and "target_modules" not in value:
            return {**value, "target_modules": []}
        return value

    @model_validator(mode="after")
    def _fields_fit(self) -> LoraAdapter:
        if self.layers_to_transform is not None and not isinstance(self.target_modules, list):
            raise ValueError("layers_to_transform needs target_modules as a list of names, found one text")
        if self.layers_pattern is not None and self.layers_to_transform is None:
            raise ValueError("layers_pattern says where layers_to_transform counts, and that is missing")
        if not self.target_modules and not self.target_parameters:
            raise ValueError("an empty target_modules adapts nothing; name modules, or use target_parameters")
        if self.target_parameters and (self.use_dora or self.lora_bias or self.lora_dropout):
            raise ValueError("target_parameters works without use_dora, lora_bias and lora_dropout alone (PEFT)")
        if self.use_dora and self.init_lora_weights == "mica":
            raise ValueError("use_dora and init_lora_weights mica are two kinds of layer; choose one")
        if self.init_lora_weights == "orthogonal" and any(r % 2 for r in (self.r, *self.rank_pattern.values())):
            raise ValueError("init_lora_weights orthogonal needs even ranks")
        if self.init_lora_weights == "mica" and self.loraplus_lr_ratio is not None:
            raise ValueError("loraplus_lr_ratio is lora_B's rate, and init_lora_weights mica leaves lora_B frozen")
        if any(start >= end for start, end in self.layer_replication or ()):
            raise ValueError("layer_replication holds ranges [start, end) with start below end")
        return self

    @property
    def changes_base(self) -> bool:
        return str(self.init_lora_weights).startswith(CHANGES_BASE)
