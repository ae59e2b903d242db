"""`preflight.json`: what a CPU could find out before a device is spent."""

from __future__ import annotations

from pydantic import Field, model_validator

from trainer_core.contract.causes import Cause
from trainer_core.frozen import Frozen


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
