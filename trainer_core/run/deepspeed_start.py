"""DeepSpeed's start on this machine. The only module that imports deepspeed; loaded only when a run uses it."""

from __future__ import annotations

import warnings
from typing import Any

import deepspeed
import deepspeed.ops
from deepspeed.runtime.engine import DeepSpeedEngine
from deepspeed.runtime.utils import clip_grad_norm_

from trainer_core.contract import RunConfig
from trainer_core.zero.config import build


def without_compiler(config: RunConfig) -> None:
    """On the CPU, do without the shared-memory collective: it is C++ that would be compiled first (about 27 s)."""
    if config.device == "cpu":
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def block(config: RunConfig) -> dict[str, Any]:
    """The whole DeepSpeed configuration of the run."""
    return build(config.parallel, config.training, config.device)


def join(backend: str) -> None:
    """Tell DeepSpeed of the process group. ZeRO-3 shards a model while it is loaded, so this comes before loading."""
    # One line a collective, thousands a run: DeepSpeed 0.19 calls torch's collectives by their older names.
    warnings.filterwarnings("ignore", message=r"`torch\.distributed\.\w+` is deprecated", category=FutureWarning)
    DeepSpeedEngine.clip_fp32_gradients = _clip_and_remember
    deepspeed.init_distributed(backend, auto_mpi_discovery=False)


def _clip_and_remember(engine: DeepSpeedEngine) -> None:
    """The engine's own clipping at stage 0, which forgets the gradient norm that it computes."""
    norm = clip_grad_norm_(parameters=engine.module.parameters(), max_norm=engine.gradient_clipping(), mpu=engine.mpu)
    engine._global_grad_norm = float(norm)
