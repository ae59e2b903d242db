"""DeepSpeed's start on this machine. The only module that imports deepspeed; loaded only when a run uses it."""

from __future__ import annotations

from typing import Any

import deepspeed
import deepspeed.ops

from trainer_core import zero
from trainer_core.contract import RunConfig


def without_compiler(config: RunConfig) -> None:
    """On the CPU, do without the shared-memory collective: it is C++ that would be compiled first (about 27 s)."""
    if config.device == "cpu":
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def block(config: RunConfig) -> dict[str, Any]:
    """The whole DeepSpeed configuration of the run."""
    return zero.build(config.parallel, config.training, config.device)


def join(backend: str) -> None:
    """Tell DeepSpeed of the process group. ZeRO-3 shards a model while it is loaded, so this comes before loading."""
    deepspeed.init_distributed(backend, auto_mpi_discovery=False)
