"""Why a run failed, in words a program can act on."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from trainer_core.frozen import Frozen


class CauseCode(StrEnum):
    DATA_INVALID = "data_invalid"
    CONFIG_INVALID = "config_invalid"
    MODEL_UNAVAILABLE = "model_unavailable"
    NO_TRAINABLE_TOKENS = "no_trainable_tokens"
    GPU_OOM = "gpu_oom"
    HOST_OOM = "host_oom"
    NON_FINITE_LOSS = "non_finite_loss"
    LOSS_FLAT = "loss_flat"
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
