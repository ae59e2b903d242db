"""`config.json`: everything a run needs, written by the service or by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from trainer_core.contract.adapters import Adapter
from trainer_core.contract.job import Columns, ParallelSpec
from trainer_core.contract.method_options import MethodBlocks
from trainer_core.contract.quantization import Quantization
from trainer_core.frozen import Frozen
from trainer_core.numbers import (
    OpenFraction,
    WholeNumber,
)


class ModelSource(Frozen):
    """Where the base model's files are."""

    name: str = Field(description="The name people registered it under; goes into the model card.")
    source: str = Field(description="An absolute folder, or a Hugging Face hub id.")
    revision: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="Precision the weights are loaded and trained in; auto: see `model/base.py`."
    )
    trust_remote_code: bool = Field(default=False, description="True only where the operator allowed it.")


RowFormat = Literal[
    "messages", "prompt_completion", "instruction", "text", "preference", "feedback", "classification",
    "token_classification", "prompts",
]  # fmt: skip


class DataSource(Frozen):
    """The rows to train on. Paths are absolute; files are normalised JSONL in UTF-8 as the service stores them."""

    train: Path
    eval: Path | None = None
    eval_fraction: Annotated[OpenFraction | None, Field(description="Held out of train, by seed.")] = None
    format: RowFormat
    columns: Columns = Columns()
    render: Literal["auto", "chat", "plain"] = Field(
        default="auto",
        description="How prompt/completion and instruction rows become text: as a user and an assistant turn of the "
        "chat template, or joined as they are; auto: chat where the tokenizer has a template.",
    )
    max_length: Annotated[WholeNumber, Field(ge=8, description="Tokens a row; longer rows are cut and counted.")] = 1024
    train_sha256: str | None = Field(default=None, description="Of the train file; goes into the checkpoint manifest.")
    eval_sha256: str | None = None


class ResumePoint(Frozen):
    """A checkpoint to start from."""

    checkpoint: Path = Field(description="Absolute folder with a complete manifest.")
    manifest_sha256: str = Field(
        description="Digest the service recorded for manifest.json; a foreign file is refused."
    )
    mode: Literal["full", "weights"] = Field(
        default="full",
        description="full: optimizer, schedule, RNG and data position too; weights: a fresh run from them.",
    )


class Retention(Frozen):
    """Checkpoints the trainer keeps on disk; best and last are separate promises and may be the same one."""

    n_best: Annotated[int, Field(ge=1)] = 1
    n_last: Annotated[int, Field(ge=1)] = 1


class RunConfig(MethodBlocks):
    """`config.json`: everything a run needs. Written by the service (worker/plan.py), or by hand."""

    version: Literal[1] = 1
    job_id: str
    job_name: str
    attempt: Annotated[int, Field(ge=0)]
    model: ModelSource
    data: DataSource
    adapter: Adapter | None = None
    quantization: Quantization | None = None
    training: dict[str, Any] = Field(
        default_factory=dict, description="TrainingArguments by name, already translated by `arguments.resolve`."
    )
    parallel: ParallelSpec = ParallelSpec()
    device: Literal["cpu", "cuda"] = "cpu"
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 42
    metric_for_best: str = Field(
        default="eval_loss", description="A key of eval records, or `loss` when nothing is evaluated."
    )
    greater_is_better: bool = False
    retention: Retention = Retention()
    resume: ResumePoint | None = None
    planned_steps: int | None = Field(default=None, description="What preflight computed; the run must agree or fail.")
