"""What really runs, read off the objects: the libraries fall back in silence, so it is compared with what was asked.

For instance torchrun without use_cpu gives two lone trainings, and fp16 on a CPU runs in fp32, both with exit code 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import Trainer

from trainer_core.contract import CauseCode, RunConfig
from trainer_core.run.faults import Fault
from trainer_core.trainers.trainer import RunTrainerMixin, zero_stage_of
from trainer_core.zero.owners import stage_of, strategy_of


@dataclass(frozen=True)
class Setup:
    wrapped_model: str
    optimizer: str
    zero_stage: int | None
    precision: str


def read_setup(trainer: RunTrainerMixin) -> Setup:
    outer, inner = type(trainer.optimizer.optimizer).__name__, type(_inner_optimizer(trainer)).__name__
    return Setup(
        wrapped_model=type(trainer.model_wrapped).__name__,
        optimizer=outer if outer == inner else f"{outer}({inner})",
        zero_stage=zero_stage_of(trainer),
        precision=_precision(trainer),
    )


def check_setup(trainer: RunTrainerMixin, config: RunConfig, setup: Setup) -> None:
    """Raises Fault(config_invalid) for the first thing that runs otherwise than the job asks."""
    world_size = config.parallel.n_processes
    _require("world size", trainer.accelerator.num_processes, world_size, "parallel.n_processes")
    if strategy_of(config.parallel) == "deepspeed":
        _require("wrapped model", setup.wrapped_model, "DeepSpeedEngine", "parallel.strategy")
        _require("ZeRO stage", setup.zero_stage, stage_of(config.parallel), "parallel.zero_stage")
    elif world_size > 1:
        _require("wrapped model", setup.wrapped_model, "DistributedDataParallel", "parallel.strategy")
    elif setup.wrapped_model != "DistributedDataParallel":  # which a launcher's lone rank gets too
        _require("wrapped model", setup.wrapped_model, type(trainer.model).__name__, "parallel.strategy")
    # With offload, or an optimizer in the job's own block, DeepSpeed may bring a class of its own.
    if config.parallel.offload == "none" and "optimizer" not in (config.parallel.deepspeed or {}):
        wanted_class = Trainer.get_optimizer_cls_and_kwargs(trainer.args, trainer.model)[0]
        _require("optimizer", type(_inner_optimizer(trainer)).__name__, wanted_class.__name__, "training.optim")
    for option in ("bf16", "fp16"):
        if config.training.get(option):
            _require("precision", setup.precision, option, f"training.{option}")
    _require("device", trainer.args.device.type, config.device, "device")


def _require(what: str, found: Any, wanted: Any, param: str) -> None:
    if found != wanted:
        raise Fault(
            CauseCode.CONFIG_INVALID,
            f"The {what} that really runs is {found}; the job asks for {wanted}.",
            hint="The libraries fell back without an error; choose what this machine and these versions can do.",
            param=param,
        )


def _inner_optimizer(trainer: RunTrainerMixin) -> Any:
    """torch's own optimizer below accelerate's and DeepSpeed's wrappers."""
    if trainer.is_deepspeed_enabled:
        return trainer.model_wrapped.basic_optimizer
    return trainer.optimizer.optimizer


def _precision(trainer: RunTrainerMixin) -> str:
    if trainer.is_deepspeed_enabled:
        engine = trainer.model_wrapped
        if engine.bfloat16_enabled() or engine.fp16_enabled():
            return "bf16" if engine.bfloat16_enabled() else "fp16"
    elif trainer.accelerator.native_amp:
        return str(trainer.accelerator.mixed_precision)
    names = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
    sizes: dict[torch.dtype, int] = {}
    for parameter in trainer.model.parameters():
        size = parameter.ds_numel if hasattr(parameter, "ds_numel") else parameter.numel()
        sizes[parameter.dtype] = sizes.get(parameter.dtype, 0) + size
    commonest = max(sizes, key=lambda dtype: sizes[dtype])
    return names.get(commonest, str(commonest))
