"""The DeepSpeed configuration of a job: the service's own, the job's numbers, and the job's DeepSpeed block on top.

One owner for each number: the job form. In the block "auto" is completed from the job, a number equal to the job's is
taken, and one that differs is refused with both values. Pure and torch-free: the service calls `check` at submit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trainer_core.contract import ParallelSpec
from trainer_core.problems import OptionsInvalid
from trainer_core.zero import block as zero_block
from trainer_core.zero.block import AUTO
from trainer_core.zero.clashes import (
    clashes,
    fixed_problems,
    nvme_problems,
    precision_problems,
    stage_problems,
    without_deepspeed,
)
from trainer_core.zero.owners import RELEASE_DEFAULTS, at, job_value, stage_of, strategy_of
from trainer_core.zero.schema import OWNERS


@dataclass(frozen=True)
class ZeroPlan:
    """How the run is spread, and the configuration DeepSpeed gets."""

    strategy: Literal["ddp", "deepspeed"]
    stage: int | None
    """ZeRO stage, or null without DeepSpeed."""
    offload_optimizer: str = "none"
    """none, cpu or nvme: where the optimizer states are."""
    offload_param: str = "none"
    config: dict[str, Any] = field(default_factory=dict)
    """The whole DeepSpeed configuration; "auto" is left only where the Trainer completes it from the model."""
    notes: list[str] = field(default_factory=list)


def build(parallel: ParallelSpec, training: Mapping[str, Any], device: Literal["cpu", "cuda"]) -> dict[str, Any]:
    """The DeepSpeed configuration of an accepted job; `training` are its resolved options. Raises as `check` does."""
    return check(parallel, training, device, nvme_roots=None).config


def check(
    parallel: ParallelSpec,
    training: Mapping[str, Any],
    device: Literal["cpu", "cuda"],
    *,
    nvme_roots: Collection[str] | None = (),
) -> ZeroPlan:
    """Reads, checks and completes. Raises OptionsInvalid with all problems, each clash showing both values.

    `training` are the options as `arguments.resolve` gave them. `nvme_roots` are the folders the operator lets runs
    put NVMe offload into; null trusts the path, for a job that was already accepted.
    """
    if strategy_of(parallel) == "ddp":
        problems = without_deepspeed(parallel)
        if problems:
            raise OptionsInvalid(problems)
        return ZeroPlan("ddp", None)
    stage = stage_of(parallel)
    job = {**RELEASE_DEFAULTS, **{name: value for name, value in training.items() if value is not None}}
    block, problems = zero_block.read(parallel.deepspeed or {}, stage, device)
    problems += stage_problems(parallel, stage) + precision_problems(job, device)
    if not problems:
        problems += clashes(block, parallel, job) + fixed_problems(block, job, stage)
        problems += nvme_problems(block, stage, nvme_roots)
    if problems:
        raise OptionsInvalid(problems)
    config = _merge(_own(parallel, job, stage, device), _completed(block, parallel, job))
    offload = {name: _offload(config, name) for name in ("offload_optimizer", "offload_param")}
    return ZeroPlan("deepspeed", stage, **offload, config=config, notes=_notes(config, block, device, offload))


# The service's own configuration -----------------------------------------------------------------------------------


def _own(parallel: ParallelSpec, job: Mapping[str, Any], stage: int, device: str) -> dict[str, Any]:
    """Every number of the job form, and defaults. torch's optimizer is used, so that no C++ is compiled."""
    return {
        **{key: job_value(key, parallel, job) for key in _BATCH_KEYS},
        "fp16": {"enabled": bool(job["fp16"])},
        # Left to the Trainer where the job does not say: it turns bf16 on where the hardware has it.
        "bf16": {"enabled": bool(job["bf16"]) if job["bf16"] else AUTO},
        "zero_optimization": _own_zero(parallel, stage, device),
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }


_BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")


def _own_zero(parallel: ParallelSpec, stage: int, device: str) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": stage}
    if stage > 0:
        # The bucket is held in memory; DeepSpeed's own 5e8 elements would be 2 GB a process. Streams: CUDA only.
        zero |= {"reduce_bucket_size": 50_000_000 if device == "cuda" else 5_000_000, "overlap_comm": device == "cuda"}
    if stage == 3:
        # From the model's hidden size, by the Trainer (HfTrainerDeepSpeedConfig.trainer_config_finalize). Without
        # the gathered weights a checkpoint would hold shards alone, and nothing to download.
        zero |= dict.fromkeys(_HIDDEN_SIZE_KEYS, AUTO) | {"stage3_gather_16bit_weights_on_model_save": True}
    host = {"device": "cpu", "pin_memory": device == "cuda"}
    if parallel.offload != "none":
        zero["offload_optimizer"] = dict(host)
    if parallel.offload == "all":
        zero["offload_param"] = dict(host)
    return zero


_HIDDEN_SIZE_KEYS = ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")


# Putting both together ---------------------------------------------------------------------------------------------


def _completed(block: Mapping[str, Any], parallel: ParallelSpec, job: Mapping[str, Any]) -> dict[str, Any]:
    """The block with "auto" filled in from the job, wherever the number is already known."""
    filled = _merge({}, block)
    for key in OWNERS:
        value = job_value(key, parallel, job)
        if at(block, key) is not None and value is not None and key != "bf16.enabled":
            _put(filled, key, value)
    if not job["bf16"] and isinstance(filled.get("bf16"), dict):
        filled["bf16"]["enabled"] = AUTO
    if "optimizer" in filled:
        given = filled["optimizer"].get("params", {})
        names = ("lr", "betas", "eps", "weight_decay")
        owned = {name: job_value(f"optimizer.params.{name}", parallel, job) for name in names}
        filled["optimizer"]["params"] = {**given, **owned, "torch_adam": True}
    if at(filled, "scheduler.params.warmup_min_lr") == AUTO:
        filled["scheduler"]["params"]["warmup_min_lr"] = 0.0
    return filled


def _notes(config: Mapping[str, Any], block: Mapping[str, Any], device: str, offload: Mapping[str, str]) -> list[str]:
    notes = []
    if device == "cpu" and "cpu" in offload.values():
        notes.append("Offload to host memory saves nothing on CPU devices: it is the same memory.")
    if "nvme" in offload.values():
        notes.append("NVMe offload compiles DeepSpeed's async_io once (minutes; needs libaio and a C++ compiler).")
    if "optimizer" in block:
        notes.append("The block's optimizer decays every weight; the Trainer's own leaves biases and norms out.")
    left = [key for key in (*_HIDDEN_SIZE_KEYS,) if at(config, f"zero_optimization.{key}") == AUTO]
    if left:
        notes.append(f"{', '.join(left)}: completed from the model's hidden size when the run starts.")
    return notes


def _offload(config: Mapping[str, Any], name: str) -> str:
    part = at(config, f"zero_optimization.{name}") or {}
    return str(part.get("device", "none"))


def _put(block: dict[str, Any], key: str, value: Any) -> None:
    *parts, last = key.split(".")
    for part in parts:
        block = block[part]
    block[last] = value


def _merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """A deep copy of both, where `over` wins for everything that is no object on both sides."""
    merged = {name: _merge({}, value) if isinstance(value, Mapping) else value for name, value in under.items()}
    for name, value in over.items():
        if isinstance(value, Mapping):
            below = merged.get(name)
            merged[name] = _merge(below if isinstance(below, dict) else {}, value)
        else:
            merged[name] = value
    return merged
