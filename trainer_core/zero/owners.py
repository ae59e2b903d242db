"""Who owns a DeepSpeed number: the job's value for each key that the job form and a DeepSpeed block could both give.

Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from trainer_core.contract import ParallelSpec
from trainer_core.numbers import same_number

DEFAULT_STAGE = 2

RELEASE_DEFAULTS: dict[str, Any] = {
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "max_grad_norm": 1.0, "learning_rate": 5e-5,
    "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8, "weight_decay": 0.0, "warmup_steps": 0,
    "lr_scheduler_type": "linear", "optim": "adamw_torch_fused", "fp16": False, "bf16": False,
}  # fmt: skip
"""What TrainingArguments of the installed release takes for options that are not given; a test compares."""


def strategy_of(parallel: ParallelSpec) -> Literal["ddp", "deepspeed"]:
    """What strategy "auto" stands for: DeepSpeed as soon as anything of it is asked for, else DDP."""
    if parallel.strategy != "auto":
        return parallel.strategy
    asks = parallel.zero_stage is not None or parallel.offload != "none" or parallel.deepspeed
    return "deepspeed" if asks else "ddp"


def stage_of(parallel: ParallelSpec) -> int:
    """The ZeRO stage: parallel.zero_stage, else the block's own, else 2."""
    if parallel.zero_stage is not None:
        return parallel.zero_stage
    zero = (parallel.deepspeed or {}).get("zero_optimization")
    stage = zero.get("stage") if isinstance(zero, Mapping) else None
    return next((known for known in (0, 1, 2, 3) if same_number(stage, known)), DEFAULT_STAGE)


def job_value(key: str, parallel: ParallelSpec, job: Mapping[str, Any]) -> Any:
    """The job form's value for a key of `OWNERS`; null where it is known only once the rows are counted."""
    batch, accumulation = job["per_device_train_batch_size"], job["gradient_accumulation_steps"]
    total = job.get("max_steps") if job.get("max_steps", -1) != -1 else None
    warmup = job["warmup_steps"]
    if 0 < warmup < 1:
        warmup = None if total is None else math.ceil(total * warmup)
    return {
        "train_batch_size": batch * accumulation * parallel.n_processes,
        "train_micro_batch_size_per_gpu": batch,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": job["max_grad_norm"],
        "optimizer.params.lr": job["learning_rate"],
        "optimizer.params.betas": [job["adam_beta1"], job["adam_beta2"]],
        "optimizer.params.eps": job["adam_epsilon"],
        "optimizer.params.weight_decay": job["weight_decay"],
        "scheduler.params.warmup_max_lr": job["learning_rate"],
        # DeepSpeed refuses 0, so the Trainer fills in at least 1.
        "scheduler.params.warmup_num_steps": None if warmup is None else max(1, int(warmup)),
        "scheduler.params.total_num_steps": total,
        "fp16.enabled": bool(job["fp16"]),
        "bf16.enabled": bool(job["bf16"]),
        "zero_optimization.stage": stage_of(parallel),
    }[key]


def at(block: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted path, or null."""
    node: Any = block
    for part in key.split("."):
        if not isinstance(node, Mapping):
            return None
        node = node.get(part)
    return node
