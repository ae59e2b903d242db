"""`manifest.json` in a checkpoint folder, which makes it complete."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainer_core.frozen import Frozen


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
