"""The adapters a job can ask for, with PEFT's own field names."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trainer_core.contract.job import FieldName
from trainer_core.frozen import Frozen
from trainer_core.numbers import (
    Fraction,
    Number,
    PositiveNumber,
    PositiveWholeNumber,
    WholeNumber,
)


class LoraAdapter(Frozen):
    """LoRA, with PEFT's own field names (https://huggingface.co/docs/peft/package_reference/lora)."""

    type: Literal["lora"] = "lora"
    r: Annotated[PositiveWholeNumber, Field(le=4096, description="Rank of the update matrices.")] = 8
    lora_alpha: Annotated[PositiveNumber, Field(description="Scale; the update is multiplied by lora_alpha / r.")] = 16
    lora_dropout: Annotated[Fraction, Field(description="Dropout on the adapter's input.")] = 0.0
    target_modules: Annotated[
        list[FieldName] | Literal["all-linear"],
        Field(description="Names of the linear modules to adapt, or all of them but the output layer."),
    ] = "all-linear"
    exclude_modules: list[FieldName] | None = None
    bias: Literal["none", "all", "lora_only"] = "none"
    use_rslora: bool = Field(default=False, description="Scale by lora_alpha / sqrt(r) instead.")
    use_dora: bool = Field(default=False, description="Weight-decomposed LoRA.")
    modules_to_save: list[FieldName] | None = Field(default=None, description="Modules trained and saved in full.")
    layers_to_transform: list[WholeNumber] | WholeNumber | None = None
    layers_pattern: str | None = None
    rank_pattern: dict[str, PositiveWholeNumber] = Field(default_factory=dict)
    alpha_pattern: dict[str, Number] = Field(default_factory=dict)
    init_lora_weights: bool | Literal["gaussian", "pissa", "olora", "orthogonal"] = True

    @model_validator(mode="after")
    def _layers_need_named_modules(self) -> LoraAdapter:
        if self.layers_to_transform is not None and self.target_modules == "all-linear":
            raise ValueError("layers_to_transform needs target_modules as a list of names, found all-linear")
        if self.layers_pattern is not None and self.layers_to_transform is None:
            raise ValueError("layers_pattern says where layers_to_transform counts, and that is missing")
        return self
