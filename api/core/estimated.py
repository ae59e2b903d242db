"""What an estimate says: memory by component, disk, tokens, steps and time. Values only; `estimates.py` fills them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainer_core.contract import Frozen


class MemoryOut(Frozen):
    """Bytes a device needs at the peak of a step, by what they hold, and bytes on the host for all processes."""

    device_bytes: int = Field(description="The sum of the components below.")
    host_bytes: int
    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int = Field(description="Moments, and the fp32 master weights that ZeRO keeps.")
    activations_bytes: int
    logits_bytes: int
    buffers_bytes: int = Field(description="Communication buckets; at ZeRO-3 the gathered largest module.")


class StrategyOut(Frozen):
    """One way to spread the run, and what it needs."""

    strategy: Literal["ddp", "deepspeed"]
    zero_stage: int | None
    offload: Literal["none", "optimizer", "all"]
    memory: MemoryOut
    checkpoint_bytes: int | None = Field(description="Disk a checkpoint takes; null: an adapter of unknown size.")
    fits: bool | None = Field(description="On every node that may take the job; null: their memory is not known.")


class TokensOut(Frozen):
    """Tokens that are not padding."""

    per_epoch: int
    total: int
    counted_by_job: str | None = Field(
        description="The job whose check counted the same rows; null: estimated, four bytes a token."
    )


class TimeOut(Frozen):
    """Seconds of training, by the pace of a similar run that succeeded."""

    seconds: float
    tokens_per_second: float = Field(description="As this job is expected to run: by device, times its processes.")
    job_id: str = Field(description="The run it is known from: same model, method, kind of adapter and of device.")
    n_processes: int = Field(description="Of that run.")


class JobEstimate(Frozen):
    """What a job is expected to need, as it was resolved."""

    n_parameters: int | None = Field(default=None, description="Null: neither its type nor its files say.")
    n_trainable: int | None = None
    planned_steps: int
    tokens: TokensOut
    time: TimeOut | None = Field(default=None, description="Null: no similar run has succeeded yet.")
    chosen: StrategyOut | None = Field(default=None, description="The strategy the job runs with; null: size unknown.")
    device_memory_bytes: int | None = Field(
        default=None, description="Of one device of the smallest node that may take it; a CPU slot has its share."
    )
    notes: list[str] = Field(default_factory=list)
