"""How the frozen base under an adapter is held in few bits (QLoRA), by bitsandbytes. Pure: pydantic only."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trainer_core.contract.job import FieldName
from trainer_core.frozen import Frozen
from trainer_core.numbers import PositiveNumber


class Quantization(Frozen):
    """Linear layers of the base in 4 or 8 bits; embeddings, norms and the output layer stay as they are."""

    bits: Literal["nf4", "fp4", "int8"] = Field(description="nf4 is QLoRA's; int8 is LLM.int8().")
    double_quant: bool | None = Field(default=None, description="4 bits: quantise the scales too. null: true.")
    compute_dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = Field(
        default=None, description="4 bits: precision of the products; null or auto: that of the other weights."
    )
    llm_int8_threshold: Annotated[
        PositiveNumber | None, Field(description="int8: activations beyond it are kept in 16 bits. null: 6.")
    ] = None
    skip_modules: Annotated[
        list[FieldName] | None, Field(description="Linear modules left as they are, beside the output layer.")
    ] = None

    @model_validator(mode="after")
    def _fields_of_its_kind(self) -> Quantization:
        foreign = ("double_quant", "compute_dtype") if self.bits == "int8" else ("llm_int8_threshold",)
        for name in foreign:
            if getattr(self, name) is not None:
                other = "nf4 and fp4" if self.bits == "int8" else "int8"
                raise ValueError(f"{name} is for {other}, and bits is {self.bits}")
        return self
