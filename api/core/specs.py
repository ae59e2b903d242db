"""The job body as people send it, and what it was resolved to: what the run will really use.

`Resolved` is frozen when the job is created; `worker/plan.py` turns it and the placed devices into a run's config.json.
"""

from __future__ import annotations

import unicodedata
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from api.core.estimated import JobEstimate
from api.core.stalls import StallSpec
from trainer_core.contract import Adapter, Columns, Frozen, ParallelSpec, Quantization, Retention
from trainer_core.contract.method_options import MethodBlocks
from trainer_core.data.report import TrainFormat
from trainer_core.numbers import OpenFraction, PositiveWholeNumber, WholeNumber, as_whole
from trainer_core.problems import Problem

MAX_LABELS = 64


def one_line(text: str) -> str:
    """Text for one line of a page: NFC, no control characters, not blank. Raises ValueError."""
    text = unicodedata.normalize("NFC", text)
    if any(unicodedata.category(character) in {"Cc", "Zl", "Zp"} for character in text):
        raise ValueError("expected one line of text, found a control character or line break")
    if not text.strip():
        raise ValueError("expected some text, found nothing but space")
    return text.strip()


def plain_text(text: str) -> str:
    if any(unicodedata.category(character) == "Cc" and character not in "\n\r\t" for character in text):
        raise ValueError("expected plain text, found a control character")
    return text


def _step_or_word(value: object) -> object:
    return value if value in ("best", "last") else as_whole(value)


Name = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(one_line)]
Reference = Annotated[str, StringConstraints(min_length=1, max_length=255), AfterValidator(one_line)]
LabelKey = Annotated[str, StringConstraints(min_length=1, max_length=64), AfterValidator(one_line)]
LabelValue = Annotated[str, StringConstraints(max_length=512), AfterValidator(plain_text)]
TimeLimit = Annotated[PositiveWholeNumber, Field(le=10**9)]
ProjectName = Annotated[str, StringConstraints(min_length=1, max_length=64), AfterValidator(one_line)]
CheckpointName = Annotated[
    Literal["best", "last"] | Annotated[int, Field(ge=1)],
    BeforeValidator(_step_or_word),
]


class DatasetSpec(Frozen):
    """Which rows to train on, and how they are read."""

    train: Reference = Field(description="Id of a dataset, or the name of one (the newest of that name).")
    eval: Reference | None = Field(default=None, description="A dataset of its own for evaluation.")
    eval_fraction: Annotated[
        OpenFraction | None, Field(description="Part of the train rows to hold out for evaluation, chosen by seed.")
    ] = None
    columns: Columns = Field(default=Columns(), description="The format's own field names -> the file's columns.")
    render: Literal["auto", "chat", "plain"] = Field(
        default="auto", description="How prompts become text: the model's chat template, or joined as they are."
    )
    max_length: Annotated[
        PositiveWholeNumber, Field(ge=8, le=2**20, description="Tokens a row; longer rows are cut and counted.")
    ] = 1024

    @model_validator(mode="after")
    def _one_way_to_evaluate(self) -> DatasetSpec:
        if self.eval is not None and self.eval_fraction is not None:
            raise ValueError("expected `eval` or `eval_fraction`, found both; leave one out")
        return self


class ContinueFrom(Frozen):
    """A checkpoint of an earlier job to start from."""

    job: Reference = Field(description="Id of the earlier job.")
    checkpoint: CheckpointName = Field(default="last", description="best, last, or a step.")
    mode: Literal["full", "weights"] = Field(
        default="full",
        description="full: optimizer, schedule, data position and step numbers go on; weights: a fresh run from them.",
    )


class ResourceSpec(Frozen):
    """What the devices must be. All of a node's devices that a job gets are of one sort."""

    device: Literal["cpu", "cuda"] | None = Field(default=None, description="null: CUDA where a node has it.")
    min_memory_bytes: Annotated[
        PositiveWholeNumber | None, Field(description="Memory each device must have at least.")
    ] = None
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, max_length=MAX_LABELS, description="Labels that the node must have."
    )


class JobSpec(MethodBlocks):
    """The body of POST /v1/jobs. A key it does not know is refused, at any depth."""

    name: Name | None = Field(default=None, description="A label for people; null: made of model and dataset.")
    model: Reference = Field(description="Name (or id) of a registered base model.")
    dataset: DatasetSpec
    adapter: Adapter | None = Field(default=None, description="null: every weight is trained; see docs/adapters.md.")
    quantization: Quantization | None = Field(
        default=None, description="Hold the frozen base under an adapter in 4 or 8 bits (QLoRA)."
    )
    training: dict[str, Any] = Field(default_factory=dict, description="transformers.TrainingArguments by name.")
    parallel: ParallelSpec = ParallelSpec()
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=MAX_LABELS)
    priority: Annotated[WholeNumber, Field(ge=-1000, le=1000, description="Higher goes first.")] = 0
    notes: Annotated[str, StringConstraints(max_length=20_000), AfterValidator(plain_text)] | None = None
    continue_from: ContinueFrom | None = None
    depends_on: list[Reference] = Field(
        default_factory=list, max_length=100, description="Ids of jobs that must have succeeded before it starts."
    )
    time_limit_s: TimeLimit | None = Field(
        default=None, description="Seconds it may run, over all attempts; then it saves a checkpoint and fails."
    )
    project: ProjectName = Field(default="default", description="Whose share of the devices it counts against.")
    preemptible: bool = Field(
        default=False, description="May be stopped at a checkpoint for a job of higher priority, and goes on later."
    )
    resources: ResourceSpec = ResourceSpec()
    stall: StallSpec = Field(default=StallSpec(), description="How long it may be silent, and what follows.")


# ---------------------------------------------------------------------------------------------------------------------
# Resolved
# ---------------------------------------------------------------------------------------------------------------------


class ResolvedModel(Frozen):
    id: str
    name: str
    source: str = Field(description="An absolute folder, or a Hugging Face hub id.")
    revision: str | None = None
    trust_remote_code: bool = False
    n_parameters: int | None = Field(default=None, description="From the weight files' headers; null: not known yet.")


class ResolvedRows(Frozen):
    """One stored dataset as it was when the job was created."""

    id: str
    name: str
    storage_key: str
    sha256: str = Field(description="Of the stored rows.")
    n_rows: int
    size_bytes: int


class ResolvedData(Frozen):
    train: ResolvedRows
    eval: ResolvedRows | None = None
    eval_fraction: float | None = None
    format: TrainFormat
    columns: Columns = Columns()
    render: Literal["auto", "chat", "plain"] = "auto"
    max_length: int
    n_train_rows: int = Field(description="Rows left for training, as far as known before they are tokenised.")
    n_eval_rows: int


class ResolvedStart(Frozen):
    """The checkpoint a job starts from."""

    job_id: str
    checkpoint_id: str
    step: int
    mode: Literal["full", "weights"]
    storage_prefix: str
    manifest_sha256: str


class Resolved(MethodBlocks):
    """Everything a run needs but its devices and folders."""

    version: Literal[1] = 1
    model: ResolvedModel
    data: ResolvedData
    adapter: Adapter | None = None
    quantization: Quantization | None = None
    training: dict[str, Any] = Field(description="Training options with the service's defaults, names translated.")
    parallel: ParallelSpec = Field(description="`strategy` is ddp or deepspeed, never auto.")
    deepspeed: dict[str, Any] | None = Field(default=None, description="The DeepSpeed configuration; null with ddp.")
    device: Literal["cpu", "cuda"] = Field(
        default="cpu", description="The kind of device the options were checked for."
    )
    seed: int = 42
    metric_for_best: str
    greater_is_better: bool
    retention: Retention = Retention()
    planned_steps: int
    steps_per_epoch: int
    global_batch_size: int
    start: ResolvedStart | None = None
    stall: StallSpec = StallSpec()
    estimate: JobEstimate | None = Field(
        default=None, description="Memory, disk, tokens and time it is expected to need."
    )
    notes: list[str] = Field(default_factory=list, description="What was translated, defaulted or rounded.")


def detail_of(problem: Problem) -> dict[str, str | None]:
    """A problem with a body as one entry of an error's `details`."""
    return {"param": problem.param, "message": str(problem), "code": problem.code, "hint": problem.hint}
