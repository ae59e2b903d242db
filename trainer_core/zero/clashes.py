"""What of a DeepSpeed block cannot stand beside the job: clashing numbers, choices already made, paths not allowed.

Torch-free. Every function returns problems; none raises.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from trainer_core.contract import ParallelSpec
from trainer_core.numbers import same_number
from trainer_core.problems import Problem, show
from trainer_core.zero.block import AUTO, PREFIX
from trainer_core.zero.owners import at, job_value
from trainer_core.zero.schema import OWNERS, SCHEDULERS


def without_deepspeed(parallel: ParallelSpec) -> list[Problem]:
    """What of `parallel` is DeepSpeed's although the strategy is ddp."""
    asked: dict[str, object] = {
        "zero_stage": parallel.zero_stage,
        "offload": None if parallel.offload == "none" else parallel.offload,
        "deepspeed": parallel.deepspeed or None,
    }
    message, hint = "is DeepSpeed's, and parallel.strategy is ddp", "Use strategy deepspeed, or leave it out."
    return [
        Problem(f"parallel.{name}", message, "conflict", hint, show(value))
        for name, value in asked.items()
        if value is not None
    ]


def stage_problems(parallel: ParallelSpec, stage: int) -> list[Problem]:
    """Offload that the ZeRO stage does not have."""
    needed = {"none": 0, "optimizer": 1, "all": 3}[parallel.offload]
    if stage >= needed:
        return []
    message = f"offload {parallel.offload} needs ZeRO stage {needed} or higher, and this job is at stage {stage}"
    return [Problem("parallel.offload", message, "conflict", f"Set zero_stage {needed}, or another offload.")]


def precision_problems(job: Mapping[str, Any], device: str) -> list[Problem]:
    """Precision that the device or DeepSpeed would turn into something else."""
    problems = []
    if job["fp16"] and device == "cpu":
        message = "acts on CUDA devices only, and this job runs on cpu"
        problems.append(Problem("training.fp16", message, "not_on_device", "Use bf16, or leave it out.", "true"))
    for name in ("bf16", "fp16"):
        if job.get(f"{name}_full_eval") and not job[name]:
            # HfTrainerDeepSpeedConfig turns the whole training to that precision.
            message = f"under DeepSpeed it would train in {name} too, and training.{name} is not true"
            hint = f"Set training.{name}: true, or leave it out."
            problems.append(Problem(f"training.{name}_full_eval", message, "conflict", hint, "true"))
    return problems


def clashes(block: Mapping[str, Any], parallel: ParallelSpec, job: Mapping[str, Any]) -> list[Problem]:
    """Numbers that the block and the job both give, and that differ."""
    problems = []
    for key, owner in OWNERS.items():
        found = at(block, key)
        if found is None or found == AUTO:
            continue
        wanted = job_value(key, parallel, job)
        if wanted is None:
            message = f"says {show(found)}, and the number is known only once the rows are counted ({owner})"
            problems.append(Problem(f"{PREFIX}.{key}", message, "conflict", 'Write "auto".', show(found)))
        elif not _equal(found, wanted):
            message = f"says {show(found)} where the job says {show(wanted)} ({owner})"
            hint = f'Leave it out or write "auto"; the number is set by {owner}.'
            problems.append(Problem(f"{PREFIX}.{key}", message, "conflict", hint, show(found)))
    return problems


def _equal(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, bool):
        return found is wanted
    if isinstance(wanted, list):
        return all(same_number(left, right) for left, right in zip(found, wanted, strict=True))
    return same_number(found, wanted)


def fixed_problems(block: Mapping[str, Any], job: Mapping[str, Any], stage: int) -> list[Problem]:
    """Choices that the job form or the trainer has already made."""
    problems = []

    def clash(key: str, message: str, hint: str) -> None:
        problems.append(Problem(f"{PREFIX}.{key}", message, "conflict", hint, show(at(block, key))))

    schedule = at(block, "scheduler.type")
    if schedule is not None and SCHEDULERS[schedule][0] != job["lr_scheduler_type"]:
        meant, asked = SCHEDULERS[schedule][0], job["lr_scheduler_type"]
        message = f"{schedule} stands for lr_scheduler_type {meant}, where the job says {asked}"
        clash("scheduler.type", message, f"Set training.lr_scheduler_type: {meant}, or leave the scheduler out.")
    if at(block, "scheduler.params.last_batch_iteration") not in (None, -1):
        clash("scheduler.params.last_batch_iteration", "a run starts at -1; a resumed one restores it", "Leave it out.")
    if "optimizer" in block and not str(job["optim"]).startswith("adamw_torch"):
        message = f"{at(block, 'optimizer.type')} is torch's AdamW, where the job says optim {job['optim']}"
        clash("optimizer.type", message, "Set training.optim: adamw_torch, or leave the optimizer out.")
    fixed: tuple[tuple[str, bool, str], ...] = (
        ("optimizer.params.torch_adam", False, "the optimizer is training.optim: torch's own, without compiled C++"),
        ("optimizer.params.adam_w_mode", False, "training.optim is AdamW, with decoupled weight decay"),
        ("zero_allow_untested_optimizer", False, "the Trainer sets it to true for its own optimizers"),
        ("zero_force_ds_cpu_optimizer", True, "the optimizer is training.optim: torch's own, without compiled C++"),
        (
            "zero_optimization.stage3_gather_16bit_weights_on_model_save",
            False,
            "a checkpoint would hold no weights file",
        ),
    )
    for key, refused, reason in fixed:
        if at(block, key) is refused and (stage == 3 or "stage3" not in key):
            clash(key, reason, "Leave it out.")
    if at(block, "bf16.bf16_optimizer_states") and not at(block, "bf16.bf16_master_weights_and_grads"):
        clash("bf16.bf16_optimizer_states", "needs bf16_master_weights_and_grads", "Set that too, or leave it out.")
    return problems


def nvme_problems(block: Mapping[str, Any], stage: int, roots: Collection[str] | None) -> list[Problem]:
    """NVMe offload without its stage or path, or on a path the operator did not name."""
    problems = []
    for name in ("offload_optimizer", "offload_param"):
        part = at(block, f"zero_optimization.{name}") or {}
        path, param = part.get("nvme_path"), f"{PREFIX}.zero_optimization.{name}"
        if part.get("device") != "nvme":
            if path is not None:
                message = "acts with device nvme only"
                problems.append(Problem(f"{param}.nvme_path", message, "conflict", "Leave it out."))
            continue
        if stage != 3:
            message = f"NVMe offload needs ZeRO stage 3, and this job is at stage {stage}"
            problems.append(Problem(f"{param}.device", message, "conflict", "Set parallel.zero_stage 3.", "'nvme'"))
        elif path is None:
            message = "is required with device nvme and was not given"
            problems.append(Problem(f"{param}.nvme_path", message, "missing"))
        elif roots is not None and not _is_inside(path, roots):
            message = "is no folder the operator lets runs use for NVMe offload"
            hint = f"Allowed: {', '.join(sorted(roots)) or 'none here'}."
            problems.append(Problem(f"{param}.nvme_path", message, "not_served", hint, show(path)))
    return problems


def _is_inside(path: str, roots: Collection[str]) -> bool:
    """By the text of the path alone: the folder is on a node, not here."""
    if not os.path.isabs(path):
        return False
    plain = os.path.normpath(path)
    return any(os.path.commonpath((plain, os.path.normpath(root))) == os.path.normpath(root) for root in roots)
