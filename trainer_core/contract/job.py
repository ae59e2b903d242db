"""What a job asks for: the parts of its body that the trainer reads, but for the adapter and the method's options."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from trainer_core.frozen import Frozen
from trainer_core.numbers import (
    NonNegativeWholeNumber,
    PositiveWholeNumber,
)

JsonScalar = str | int | float | bool | None
FieldName = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class Columns(Frozen):
    """Maps the format's own field names onto a file's columns: `{"prompt": "question", "completion": "answer"}`.

    A dotted name looks into objects: `translation.en`.
    """

    messages: FieldName | None = None
    tools: FieldName | None = None
    prompt: FieldName | None = None
    completion: FieldName | None = None
    system: FieldName | None = None
    instruction: FieldName | None = None
    input: FieldName | None = None
    output: FieldName | None = None
    text: FieldName | None = None
    chosen: FieldName | None = None
    rejected: FieldName | None = None
    margin: FieldName | None = None
    label: FieldName | None = None
    text_pair: FieldName | None = None
    tokens: FieldName | None = None
    tags: FieldName | None = None

    def mapped(self) -> dict[str, str]:
        """Only the fields that were set: format's name -> file's name."""
        return {name: column for name, column in self if column is not None}


class ParallelSpec(Frozen):
    """How the run is spread over processes."""

    strategy: Literal["auto", "ddp", "deepspeed"] = "auto"
    n_processes: Annotated[PositiveWholeNumber, Field(le=1024, description="One device each.")] = 1
    zero_stage: Annotated[
        Annotated[NonNegativeWholeNumber, Field(le=3)] | None, Field(description="DeepSpeed ZeRO stage; null means 2.")
    ] = None
    offload: Literal["none", "optimizer", "all"] = Field(
        default="none", description="Keep optimizer states (ZeRO 1-3), or parameters too (ZeRO 3), in host memory."
    )
    deepspeed: dict[str, Any] | None = Field(
        default=None, description="Further DeepSpeed keys. Numbers that the job form owns are refused here."
    )
    launcher: Literal["torchrun", "deepspeed"] = "torchrun"
    dry_run: bool = Field(
        default=True, description="Try the longest batch and one save before the first step, and leave no trace."
    )
    on_out_of_memory: Literal["adapt", "fail"] = Field(
        default="adapt", description="adapt: try again with what needs less, the global batch unchanged; fail: end."
    )
