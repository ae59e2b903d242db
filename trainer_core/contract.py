"""The contract between the service and the trainer: the run folder, its config, its records and its exit codes.

This is the one door into `trainer_core` for the service. It imports pydantic only: no torch, no transformers,
no database, no server. A person can write a `config.json` by hand and run it: `python -m trainer_core run RUN_DIR`.
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, TypeAdapter, model_validator

from trainer_core.frozen import Frozen as Frozen
from trainer_core.method_options import MethodBlocks
from trainer_core.numbers import (
    Fraction,
    NonNegativeWholeNumber,
    Number,
    OpenFraction,
    PositiveNumber,
    PositiveWholeNumber,
    WholeNumber,
)

CONTRACT_VERSION = 1


# ---------------------------------------------------------------------------------------------------------------------
# The run folder
# ---------------------------------------------------------------------------------------------------------------------


class RunFolder:
    """Names inside a run folder. `root` is absolute; nothing here touches the disk.

    config.json  STOP           written by the service
    events.jsonl                one record a line, appended by rank 0 alone
    logs/rank{N}.log            what each rank printed, stdout and stderr together; logs/launcher.log the launcher's own
    checkpoints/checkpoint-{S}  complete once it holds manifest.json (written last, then renamed into place)
    output/                     the files of the finished run: results, plots, model card (weights are checkpoints)
    preflight.json              what `preflight` found
    exit.json                   written by the supervisor: how the launcher ended
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "config.json"
        self.stop = root / "STOP"
        self.events = root / "events.jsonl"
        self.logs = root / "logs"
        self.launcher_log = self.logs / "launcher.log"
        self.checkpoints = root / "checkpoints"
        self.output = root / "output"
        self.scratch = root / "scratch"
        self.preflight = root / "preflight.json"
        self.exit = root / "exit.json"

    def rank_log(self, rank: int) -> Path:
        return self.logs / f"rank{rank}.log"

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"checkpoint-{step}"


MANIFEST_NAME = "manifest.json"


class ExitCode(IntEnum):
    """Exit codes of `python -m trainer_core run`, the same on every rank."""

    DONE = 0
    FAILED = 1  # the cause is the last `error` record in events.jsonl
    CONFIG_INVALID = 2
    STOPPED = 75  # a STOP file was honoured at a step boundary; a checkpoint was saved if it asked for one


class StopRequest(Frozen):
    """The content of the STOP file."""

    reason: Literal["cancel", "pause", "preempt", "drain", "timeout"] = "cancel"
    save_checkpoint: bool = Field(default=False, description="Save a checkpoint at the step boundary before leaving.")


# ---------------------------------------------------------------------------------------------------------------------
# Causes: why a run failed, in words a program can act on
# ---------------------------------------------------------------------------------------------------------------------


class CauseCode(StrEnum):
    DATA_INVALID = "data_invalid"
    CONFIG_INVALID = "config_invalid"
    MODEL_UNAVAILABLE = "model_unavailable"
    NO_TRAINABLE_TOKENS = "no_trainable_tokens"
    GPU_OOM = "gpu_oom"
    HOST_OOM = "host_oom"
    NON_FINITE_LOSS = "non_finite_loss"
    STALLED = "stalled"
    RANK_DIED = "rank_died"
    NODE_LOST = "node_lost"
    DISK_FULL = "disk_full"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"
    STORAGE_UNAVAILABLE = "storage_unavailable"
    CHECKPOINT_INVALID = "checkpoint_invalid"
    WORLD_SIZE_MISMATCH = "world_size_mismatch"
    INTERNAL = "internal"


class Cause(Frozen):
    """Why a run failed, and what to do about it."""

    code: CauseCode
    message: str = Field(description="What was found and what was expected.")
    hint: str | None = Field(default=None, description="What to do about it.")
    param: str | None = Field(default=None, description="Path of the field at fault, as in the job body.")
    line: int | None = Field(default=None, description="1-based line in the dataset file.")
    rank: int | None = None
    host: str | None = None
    details: dict[str, Any] = Field(default_factory=dict, description="JSON facts: traceback tail, numbers, names.")


# ---------------------------------------------------------------------------------------------------------------------
# What a job asks for: the parts of the job body that the trainer reads
# ---------------------------------------------------------------------------------------------------------------------

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
    label: FieldName | None = None
    text_pair: FieldName | None = None
    tokens: FieldName | None = None
    tags: FieldName | None = None

    def mapped(self) -> dict[str, str]:
        """Only the fields that were set: format's name -> file's name."""
        return {name: column for name, column in self if column is not None}


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


# ---------------------------------------------------------------------------------------------------------------------
# config.json
# ---------------------------------------------------------------------------------------------------------------------


class ModelSource(Frozen):
    """Where the base model's files are."""

    name: str = Field(description="The name people registered it under; goes into the model card.")
    source: str = Field(description="An absolute folder, or a Hugging Face hub id.")
    revision: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="Precision the weights are loaded and trained in; auto: see `model.py`."
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
    adapter: LoraAdapter | None = None
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


# ---------------------------------------------------------------------------------------------------------------------
# events.jsonl: one record a line, `seq` counts from 1 without gaps within an attempt
# ---------------------------------------------------------------------------------------------------------------------


class Phase(StrEnum):
    DOWNLOADING = "downloading"
    TOKENIZING = "tokenizing"
    LOADING = "loading"
    TRAINING = "training"
    EVALUATING = "evaluating"
    SAVING = "saving"
    EXPORTING = "exporting"


class Record(Frozen):
    seq: Annotated[int, Field(ge=1)]
    at: datetime


class Started(Record):
    """First record of a run: what really runs, read off the objects and not off the configuration."""

    type: Literal["started"] = "started"
    world_size: int
    device: str
    hosts: list[str] = Field(default_factory=list)
    pids: list[int] = Field(default_factory=list, description="One a rank, in rank order.")
    versions: dict[str, str] = Field(default_factory=dict)
    resumed_from_step: int | None = None


class PhaseChanged(Record):
    type: Literal["phase"] = "phase"
    phase: Phase


class Planned(Record):
    """The plan as the trainer itself sees it, once model, data and optimizer stand."""

    type: Literal["plan"] = "plan"
    total_steps: int
    n_train_rows: int
    n_eval_rows: int
    n_epochs: float
    global_batch_size: int
    trainable_parameters: int
    total_parameters: int
    trained_tokens_per_epoch: int = Field(description="Tokens with a label in one pass over the train rows.")
    parameters_by_dtype: dict[str, int] = Field(default_factory=dict)
    wrapped_model: str = Field(description="Class of the model the Trainer drives, such as DeepSpeedEngine.")
    optimizer: str
    zero_stage: int | None = None
    precision: str = Field(description="Precision really used: fp32, bf16 or fp16.")
    report: dict[str, Any] = Field(default_factory=dict, description="Pad token rule, rows cut or dropped, template.")


class Metrics(Record):
    """Training figures at an optimizer step. NaN and infinities travel as the strings NaN, Infinity, -Infinity."""

    type: Literal["metrics"] = "metrics"
    step: int
    epoch: float | None = None
    values: dict[str, float | str] = Field(description="loss learning_rate grad_norm tokens_per_second tokens_seen ...")


class Evaluated(Record):
    type: Literal["eval"] = "eval"
    step: int
    epoch: float | None = None
    values: dict[str, float | str]


class CheckpointSaved(Record):
    """A checkpoint folder is complete under its final name and its manifest verified."""

    type: Literal["checkpoint"] = "checkpoint"
    step: int
    name: str = Field(description="Folder name under checkpoints/.")
    size_bytes: int
    n_files: int
    manifest_sha256: str
    metrics: dict[str, float | str] = Field(
        default_factory=dict, description="Newest loss and eval figures at this step."
    )
    is_best: bool = False


class CheckpointRemoved(Record):
    type: Literal["checkpoint_removed"] = "checkpoint_removed"
    step: int


class Note(Record):
    """Something a person should read: a row cut, a default taken, a C++ op compiled once."""

    type: Literal["note"] = "note"
    level: Literal["info", "warning", "error"] = "info"
    message: str
    data: dict[str, Any] = Field(default_factory=dict)


class Done(Record):
    """The planned steps are done and the saved weights were read back and are finite."""

    type: Literal["done"] = "done"
    step: int
    total_steps: int
    best_step: int | None = None
    last_step: int
    metrics: dict[str, float | str] = Field(default_factory=dict)


class Stopped(Record):
    type: Literal["stopped"] = "stopped"
    step: int
    reason: str
    checkpoint_step: int | None = None


class Failed(Record):
    type: Literal["error"] = "error"
    step: int | None = None
    cause: Cause


AnyRecord = Annotated[
    Started
    | PhaseChanged
    | Planned
    | Metrics
    | Evaluated
    | CheckpointSaved
    | CheckpointRemoved
    | Note
    | Done
    | Stopped
    | Failed,
    Field(discriminator="type"),
]
record_adapter: TypeAdapter[AnyRecord] = TypeAdapter(AnyRecord)


def parse_record(line: str | bytes) -> AnyRecord:
    """One line of events.jsonl. Raises pydantic.ValidationError on anything that is not a record."""
    return record_adapter.validate_json(line)


# ---------------------------------------------------------------------------------------------------------------------
# manifest.json and preflight.json
# ---------------------------------------------------------------------------------------------------------------------


class ManifestFile(Frozen):
    path: str = Field(description="Relative to the checkpoint folder, forward slashes.")
    size_bytes: int
    sha256: str


class Manifest(Frozen):
    """`manifest.json` in a checkpoint folder. Its presence says the folder is complete."""

    version: Literal[1] = 1
    job_id: str
    attempt: int
    step: int
    epoch: float | None = None
    world_size: int
    strategy: Literal["ddp", "deepspeed"]
    zero_stage: int | None = None
    adapter: str | None = Field(default=None, description="Adapter type, or null for full weights.")
    versions: dict[str, str] = Field(default_factory=dict)
    data_sha256: str | None = None
    config_sha256: str | None = Field(
        default=None, description="Of what shapes the training curve: see checkpoints.py."
    )
    total_steps: int
    metrics: dict[str, float | str] = Field(default_factory=dict)
    files: list[ManifestFile]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


class TokenHistogram(Frozen):
    """Row lengths in tokens: `counts[i]` rows have a length in [edges[i], edges[i+1])."""

    edges: list[int]
    counts: list[int]
    longest: int
    mean: float


class SampleToken(Frozen):
    text: str
    learnt: bool


class PreflightReport(Frozen):
    """`preflight.json`: what a CPU could find out before a device is spent."""

    ok: bool
    cause: Cause | None = None
    n_train_rows: int = 0
    n_eval_rows: int = 0
    n_rows_truncated: int = 0
    n_rows_dropped: int = 0
    planned_steps: int = 0
    steps_per_epoch: int = 0
    trained_tokens: int = Field(default=0, description="Tokens with a label in one pass over train.")
    total_tokens: int = 0
    histogram: TokenHistogram | None = None
    sample: list[SampleToken] = Field(default_factory=list, description="The first row as the model sees it.")
    sample_text: str | None = None
    notes: list[str] = Field(default_factory=list)
    n_parameters: int | None = None
    memory_bytes_per_device: int | None = None
    disk_bytes_per_checkpoint: int | None = None

    @model_validator(mode="after")
    def _a_failure_has_a_cause(self) -> PreflightReport:
        if not self.ok and self.cause is None:
            raise ValueError("a preflight that is not ok names its cause")
        return self
