"""`events.jsonl`: one record a line; `seq` counts from 1 without gaps within an attempt."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from trainer_core.contract.causes import Cause
from trainer_core.frozen import Frozen


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
    trainable_share: float | None = Field(default=None, description="trainable_parameters of total_parameters.")
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
