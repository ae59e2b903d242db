"""Training options judged together: what each allows alone may still clash, do nothing, or die at the first step.

Torch-free. Every check adds problems to the reading; none raises.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from trainer_core.arguments.read import Reading
from trainer_core.arguments.table import (
    ACCEPTED,
    CHECKPOINTING_KEYS,
    EVALUATION_SCHEDULERS,
    NEEDED_SCHEDULER_KEYS,
    NO_WARMUP_SCHEDULERS,
    OPTIMIZERS,
    SCHEDULERS,
)
from trainer_core.problems import Problem, unknown_key


def check_together(reading: Reading, *, device: str, strategy: str, extra_packages: Collection[str]) -> None:
    """All joint checks, on the values read so far."""
    _check_device(reading, device, strategy)
    _check_precision(reading)
    _check_packages(reading, extra_packages)
    _check_length(reading)
    _check_schedule(reading, strategy)
    _check_schedule_numbers(reading)
    _check_loading(reading)
    _check_dependents(reading)


def _check_device(reading: Reading, device: str, strategy: str) -> None:
    for name, value in reading.values.items():
        only = ACCEPTED[name].only if name in ACCEPTED else ""
        if only == "cuda" and device != "cuda" and value is not False:
            message = f"acts on CUDA devices only, and this job runs on {device}"
            hint = "Use bf16, or leave it out for float32." if name == "fp16" else f"Leave `{name}` out."
            reading.refuse(name, message, "not_on_device", hint=hint, found=value)
        if only == "ddp" and strategy != "ddp":
            message = "acts under plain data parallelism only, and this job runs under DeepSpeed"
            reading.refuse(name, message, "conflict", hint="Use parallel.strategy ddp, or leave it out.", found=value)


def _check_precision(reading: Reading) -> None:
    for half, brain in (("fp16", "bf16"), ("fp16_full_eval", "bf16_full_eval")):
        if reading.values.get(half) and reading.values.get(brain):
            reading.refuse(
                half, f"{half} and {brain} are both true", "conflict", hint=f"Keep one; {brain} if in doubt."
            )


def _check_packages(reading: Reading, extra_packages: Collection[str]) -> None:
    values = reading.values
    optim = values.get("optim")
    package = OPTIMIZERS.get(optim) if optim is not None else None
    if package is not None and package not in extra_packages:
        plain = ", ".join(name for name, needs in OPTIMIZERS.items() if needs is None)
        message = f"needs the package {package}, which the trainer does not have"
        reading.refuse("optim", message, "not_available", hint=f"Available: {plain}.", found=optim)
    if values.get("use_liger_kernel") and "liger_kernel" not in extra_packages:
        message = "needs the package liger_kernel, which the trainer does not have"
        reading.refuse("use_liger_kernel", message, "not_available", hint="Leave it out.")
    for name in ("optim_args", "optim_target_modules"):
        if name in values and package is None and not reading.was_refused("optim"):
            message = f"no effect with optim {optim or 'adamw_torch'}, which takes none of it"
            reading.refuse(name, message, "conflict", hint="Leave it out.", found=values[name])


def _check_length(reading: Reading) -> None:
    """Warm-up against max_steps; against the epochs' steps it is checked once the rows are counted (steps.py)."""
    warmup, total = reading.values.get("warmup_steps", 0), reading.values.get("max_steps")
    if total is not None and warmup >= 1 and warmup > total:
        reading.refuse(
            "warmup_steps",
            f"warms up for {warmup:g} steps, but max_steps is {total}: the rate would never be reached",
            "out_of_range",
            hint=f"Give at most {total}, or a share such as 0.03.",
            found=warmup,
        )


def _check_schedule(reading: Reading, strategy: str) -> None:
    values = reading.values
    name = values.get("lr_scheduler_type", "cosine")
    if name in NO_WARMUP_SCHEDULERS and values.get("warmup_steps", 0) > 0:
        message = f"no effect with lr_scheduler_type {name}, which has no warm-up"
        hint = "Use constant_with_warmup, or leave it out."
        reading.refuse("warmup_steps", message, "conflict", hint=hint, found=values["warmup_steps"])
    if name in EVALUATION_SCHEDULERS and strategy == "deepspeed":
        message = f"{name} needs the evaluation's figure at each step of the schedule, and DeepSpeed hands it none"
        reading.refuse("lr_scheduler_type", message, "conflict", hint="Use parallel.strategy ddp or another schedule.")
    elif name in EVALUATION_SCHEDULERS and values.get("eval_strategy", "no") == "no":
        message = f"{name} follows the evaluation, and this job evaluates nothing"
        reading.refuse("lr_scheduler_type", message, "conflict", hint="Give eval rows, or use another schedule.")


def _check_schedule_numbers(reading: Reading) -> None:
    """The keys the schedule takes, all of those it needs, and each number where it makes sense."""
    name = reading.values.get("lr_scheduler_type", "cosine")
    kwargs: dict[str, Any] = reading.values.get("lr_scheduler_kwargs", {})
    _check_keys(reading, "lr_scheduler_kwargs", SCHEDULERS[name], f" of lr_scheduler_type {name}")
    for group in NEEDED_SCHEDULER_KEYS.get(name, ()):
        if len(group & kwargs.keys()) != 1:
            message = f"{name} needs exactly one of {', '.join(sorted(group))}"
            reading.refuse("lr_scheduler_kwargs", message, "missing", hint="Add it under lr_scheduler_kwargs.")
    for key, value in kwargs.items():
        _check_schedule_number(reading, key, value)
    rate, end = reading.values.get("learning_rate"), kwargs.get("lr_end", _POLYNOMIAL_END)
    if name == "polynomial" and rate is not None and isinstance(end, int | float) and end >= rate:
        message = f"ends at {end:g}, which is not under learning_rate {rate:g}"
        reading.refuse("lr_scheduler_kwargs.lr_end", message, "conflict", hint="Give a smaller lr_end.")


def _check_keys(reading: Reading, name: str, valid: Collection[str], of_what: str = "") -> None:
    for key in reading.values.get(name, {}):
        if key not in valid:
            param = f"training.{name}.{key}"
            problem = unknown_key(param, key, valid)
            reading.problems.append(Problem(param, problem.message + of_what, problem.code, problem.hint))


_POLYNOMIAL_END = 1e-7  # default of transformers.get_polynomial_decay_schedule_with_warmup
_SCHEDULE_TEXT = {
    "warmup_type": ("linear", "cosine", "1-sqrt"),
    "decay_type": ("linear", "cosine", "1-sqrt"),
    "mode": ("min", "max"),
    "threshold_mode": ("rel", "abs"),
}
_SCHEDULE_WHOLE = frozenset(
    {"num_decay_steps", "num_stable_steps", "timescale", "patience", "cooldown", "warmup", "window_size", "reset_start"}
)
_SCHEDULE_BOOL = frozenset({"smooth", "verbose"})


def _check_schedule_number(reading: Reading, key: str, value: Any) -> None:
    """Numbers of a schedule: finite and not negative, whole where they count steps."""
    param = f"lr_scheduler_kwargs.{key}"
    if key in _SCHEDULE_TEXT:
        if value not in _SCHEDULE_TEXT[key]:
            reading.refuse(param, f"expected one of {', '.join(_SCHEDULE_TEXT[key])}", found=value)
    elif key in _SCHEDULE_BOOL:
        if not isinstance(value, bool):
            reading.refuse(param, "expected true or false", found=value)
    elif isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        reading.refuse(param, "expected a number of at least 0", found=value)
    elif key in _SCHEDULE_WHOLE and not isinstance(value, int):
        reading.refuse(param, "expected a whole number of steps", found=value)
    elif key == "factor" and not 0 < value < 1:
        reading.refuse(param, "must be over 0 and under 1", "out_of_range", found=value)
    elif key in ("timescale", "window_size") and value < 1:
        reading.refuse(param, "must be at least 1", "out_of_range", found=value)


def _check_loading(reading: Reading) -> None:
    """Loader options that torch refuses without loader processes."""
    if reading.values.get("dataloader_num_workers", 0) > 0 or reading.was_refused("dataloader_num_workers"):
        return
    for name in (
        "dataloader_prefetch_factor",
        "dataloader_multiprocessing_context",
        "dataloader_persistent_workers",
    ):
        if reading.values.get(name):
            message = "needs loader processes, and dataloader_num_workers is 0"
            reading.refuse(name, message, "conflict", hint="Set dataloader_num_workers, or leave it out.")


def _check_dependents(reading: Reading) -> None:
    """Options that are nothing without another one."""
    values = reading.values
    pairs = (
        ("activation_checkpointing_kwargs", "activation_checkpointing"),
        ("liger_kernel_config", "use_liger_kernel"),
        ("generation_max_length", "predict_with_generate"),
        ("generation_num_beams", "predict_with_generate"),
        ("generation_config", "predict_with_generate"),
    )
    for name, owner in pairs:
        if name in values and not values.get(owner):
            reading.refuse(name, f"no effect without {owner}", "conflict", hint=f"Set {owner}: true, or leave it out.")
    _check_keys(reading, "activation_checkpointing_kwargs", CHECKPOINTING_KEYS)
    for name in ("torch_compile_backend", "torch_compile_mode"):
        if name in values and values.get("torch_compile") is False:
            reading.refuse(name, "no effect with torch_compile false", "conflict", hint="Leave it out.")
    if values.get("use_cache") and values.get("activation_checkpointing"):
        reading.refuse("use_cache", "clashes with activation_checkpointing", "conflict", hint="Leave use_cache out.")
