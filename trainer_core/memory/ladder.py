"""What a run gives up, in turn, when a device had no room for it. Pure and torch-free.

The order is that of the loss of speed: smaller micro-batches, activation checkpointing, ZeRO-2, optimizer offload,
ZeRO-3, parameter offload. The rows that an optimizer step sees, and the steps planned, are the same on every rung.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trainer_core.contract import ParallelSpec
from trainer_core.zero.owners import RELEASE_DEFAULTS, stage_of, strategy_of

RungName = Literal[
    "micro_batch", "activation_checkpointing", "zero_2", "optimizer_offload", "zero_3", "parameter_offload"
]
# What a job may repeat in its DeepSpeed block of numbers that a rung changes.
REPEATED = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


@dataclass(frozen=True)
class Change:
    """One option, by its path in the job's body, before and after."""

    param: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.param} {self.old} -> {self.new}"


@dataclass(frozen=True)
class Rung:
    """The options of the next try."""

    name: RungName
    training: dict[str, Any]
    parallel: ParallelSpec
    changes: list[Change] = field(default_factory=list)

    @property
    def keeps_states(self) -> bool:
        """Whether optimizer states saved before fit the run: the strategy and stage are the same."""
        return self.name in ("micro_batch", "activation_checkpointing") or not any(
            change.param in ("parallel.strategy", "parallel.zero_stage") for change in self.changes
        )


def rungs_below(training: Mapping[str, Any], parallel: ParallelSpec, device: Literal["cpu", "cuda"]) -> Iterator[Rung]:
    """Every rung below these resolved options, the next one first; the caller takes the first that the job allows.

    Each but the smaller micro-batch is one try; halving starts again from the options that the next call is given.
    """
    if (rung := _smaller_batch(training, parallel)) is not None:
        yield rung
    if not (training.get("gradient_checkpointing") or training.get("activation_checkpointing")):
        changes = [Change("training.gradient_checkpointing", False, True)]
        yield Rung("activation_checkpointing", {**training, "gradient_checkpointing": True}, parallel, changes)
    yield from _sharded(training, parallel, device)


def next_rung(training: Mapping[str, Any], parallel: ParallelSpec, device: Literal["cpu", "cuda"]) -> Rung | None:
    """The first of `rungs_below`, or None at the foot of the ladder."""
    return next(rungs_below(training, parallel, device), None)


def _smaller_batch(training: Mapping[str, Any], parallel: ParallelSpec) -> Rung | None:
    """Half of it, or the largest part that divides it; None at one row, and where rows left out would change."""
    options = {**RELEASE_DEFAULTS, **training}
    batch, accumulation = options["per_device_train_batch_size"], options["gradient_accumulation_steps"]
    if batch == 1 or options.get("dataloader_drop_last"):
        return None
    smaller = max(part for part in range(1, batch // 2 + 1) if batch % part == 0)
    new = {"per_device_train_batch_size": smaller, "gradient_accumulation_steps": accumulation * (batch // smaller)}
    # Evaluations make no use of large batches but speed, and their figures are the same.
    evaluated = training.get("per_device_eval_batch_size", 8)
    if evaluated > smaller:
        new["per_device_eval_batch_size"] = smaller
    old = {**options, "per_device_eval_batch_size": evaluated}
    changes = [Change(f"training.{name}", old[name], value) for name, value in new.items()]
    return Rung("micro_batch", {**training, **new}, _without_repeated(parallel), changes)


def _sharded(training: Mapping[str, Any], parallel: ParallelSpec, device: Literal["cpu", "cuda"]) -> Iterator[Rung]:
    """ZeRO's rungs. Alone a process has nobody to share with, and a CPU device's memory is the host's already."""
    stage = stage_of(parallel) if strategy_of(parallel) == "deepspeed" else None
    shares, offloads = parallel.n_processes > 1, device == "cuda"
    below_2 = stage is None or stage < 2
    if below_2 and shares:
        yield _zero("zero_2", training, parallel, 2, parallel.offload)
    if offloads and parallel.offload == "none":
        # From here ZeRO-2 at least: what is offloaded with less is kept whole on every process.
        yield _zero("optimizer_offload", training, parallel, 2 if below_2 else stage or 2, "optimizer")
    if stage != 3 and shares:
        yield _zero("zero_3", training, parallel, 3, "optimizer" if offloads else parallel.offload)
    if offloads and parallel.offload != "all":
        yield _zero("parameter_offload", training, parallel, 3, "all")


def _zero(
    name: RungName,
    training: Mapping[str, Any],
    parallel: ParallelSpec,
    stage: int,
    offload: Literal["none", "optimizer", "all"],
) -> Rung:
    was_deepspeed = strategy_of(parallel) == "deepspeed"
    old = {
        "strategy": strategy_of(parallel),
        "zero_stage": stage_of(parallel) if was_deepspeed else None,
        "offload": parallel.offload,
    }
    new = {"strategy": "deepspeed", "zero_stage": stage, "offload": offload}
    changes = [Change(f"parallel.{key}", old[key], value) for key, value in new.items() if old[key] != value]
    spread = _without_stage(_without_repeated(parallel)).model_copy(update=new)
    return Rung(name, dict(training), spread, changes)


def _without_repeated(parallel: ParallelSpec) -> ParallelSpec:
    block = {key: value for key, value in (parallel.deepspeed or {}).items() if key not in REPEATED}
    return parallel.model_copy(update={"deepspeed": block or None})


def _without_stage(parallel: ParallelSpec) -> ParallelSpec:
    block = dict(parallel.deepspeed or {})
    zero = block.get("zero_optimization")
    if isinstance(zero, Mapping):
        block["zero_optimization"] = {key: value for key, value in zero.items() if key != "stage"}
    return parallel.model_copy(update={"deepspeed": block or None})
