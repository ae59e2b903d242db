"""The ways a run can be spread over its devices, from the fastest to the most sparing, and what each needs.

The order is DeepSpeed's own advice: ZeRO 0 > 1 > 2 > 2 with offload > 3 > 3 with offload. Pure and torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainer_core.contract import AnyAdapter, ParallelSpec, Quantization, peft_part
from trainer_core.memory.estimate import Dtype, MemoryEstimate, checkpoint_bytes, estimate
from trainer_core.memory.quantised import quantization_of
from trainer_core.memory.shape import count_parameters, read_shape
from trainer_core.memory.trained import count_trained
from trainer_core.model.rules import is_quantised, needs_whole_weights
from trainer_core.zero.owners import RELEASE_DEFAULTS, stage_of, strategy_of

Offload = Literal["none", "optimizer", "all"]


@dataclass(frozen=True)
class Strategy:
    """One way; `stage` null is plain data parallelism."""

    stage: int | None
    offload: Offload = "none"

    @property
    def name(self) -> Literal["ddp", "deepspeed"]:
        return "ddp" if self.stage is None else "deepspeed"

    def __str__(self) -> str:
        if self.stage is None:
            return "ddp"
        moved = {"none": "", "optimizer": " with optimizer offload", "all": " with optimizer and parameter offload"}
        return f"ZeRO-{self.stage}{moved[self.offload]}"

    def applied(self, parallel: ParallelSpec) -> ParallelSpec:
        return parallel.model_copy(update={"strategy": self.name, "zero_stage": self.stage, "offload": self.offload})


STRATEGIES = (
    Strategy(None), Strategy(0), Strategy(1), Strategy(1, "optimizer"), Strategy(2), Strategy(2, "optimizer"),
    Strategy(3), Strategy(3, "optimizer"), Strategy(3, "all"),
)  # fmt: skip
"""All that an estimate shows."""

BY_SPEED = (
    Strategy(None), Strategy(1), Strategy(2), Strategy(2, "optimizer"), Strategy(3), Strategy(3, "optimizer"),
    Strategy(3, "all"),
)  # fmt: skip
"""What `auto` tries in turn. Stage 0 is DDP by another road."""


@dataclass(frozen=True)
class Load:
    """What of a job decides its memory. `training` are the resolved options, `model_dtype` as in `ModelSource`."""

    model_config: Mapping[str, Any]
    n_stored: int | None
    """Parameters in the weight files, for a model type whose shape is not known."""
    adapter: AnyAdapter | None
    training: Mapping[str, Any]
    n_processes: int
    max_length: int
    """Tokens of the longest row."""
    device: Literal["cpu", "cuda"]
    model_dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    quantization: Quantization | None = None

    @property
    def n_parameters(self) -> int | None:
        return count_parameters(self.model_config) or self.n_stored

    @property
    def n_trainable(self) -> int | None:
        """Null where an adapter's size cannot be told from the config."""
        if self.adapter is None:
            return self.n_parameters
        return count_trained(self.model_config, self.adapter)

    @property
    def needs_whole_weights(self) -> bool:
        """Whether ZeRO-3 is no way for it."""
        on_quantised = quantization_of(self.quantization, self.model_config) is not None
        return needs_whole_weights(self.adapter, on_quantised=on_quantised or is_quantised(self.model_config))

    @property
    def counts_activations(self) -> bool:
        return read_shape(self.model_config) is not None


@dataclass(frozen=True)
class Need:
    """What a strategy needs: memory a device and on the host, disk a checkpoint (null: an adapter of unknown size)."""

    strategy: Strategy
    memory: MemoryEstimate
    checkpoint_bytes: int | None


def needs(load: Load, strategies: Sequence[Strategy] = STRATEGIES) -> list[Need]:
    """In the order given; nothing where neither the model's type nor its files say how large it is."""
    found = [_need(load, strategy) for strategy in strategies]
    return [need for need in found if need is not None]


def strategy_asked(parallel: ParallelSpec) -> Strategy | None:
    """The strategy that a job names; null where it leaves the choice."""
    if parallel.strategy == "auto" and strategy_of(parallel) == "ddp":
        return None
    return Strategy(stage_of(parallel), parallel.offload) if strategy_of(parallel) == "deepspeed" else Strategy(None)


def weights_dtype(
    training: Mapping[str, Any],
    *,
    has_adapter: bool,
    device: str,
    is_deepspeed: bool,
    model_dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
) -> Dtype:
    """The precision the weights are held in: the rule of model/base.py, which needs torch, for a device not yet known.

    A frozen base on CUDA is taken to be in bfloat16, which devices since 2020 have. DeepSpeed converts all weights.
    """
    wants_bf16, wants_fp16 = bool(training.get("bf16")), bool(training.get("fp16"))
    if is_deepspeed and (wants_bf16 or wants_fp16):
        return "bfloat16" if wants_bf16 else "float16"
    if model_dtype != "auto":
        return model_dtype
    if not has_adapter or wants_fp16:
        return "float32"
    return "bfloat16" if wants_bf16 or device == "cuda" else "float32"


def _need(load: Load, strategy: Strategy) -> Need | None:
    total = load.n_parameters
    if total is None:
        return None
    training = {**RELEASE_DEFAULTS, **load.training}
    dtype = weights_dtype(
        training,
        has_adapter=peft_part(load.adapter) is not None,
        device=load.device,
        is_deepspeed=strategy.stage is not None,
        model_dtype=load.model_dtype,
    )
    memory = estimate(
        load.model_config,
        total,
        adapter=load.adapter,
        quantization=quantization_of(load.quantization, load.model_config),
        dtype=dtype,
        zero_stage=strategy.stage,
        offload=strategy.offload,
        n_processes=load.n_processes,
        per_device_batch=training["per_device_train_batch_size"],
        max_length=load.max_length,
        optim=training["optim"],
        gradient_checkpointing=bool(training.get("gradient_checkpointing") or training.get("activation_checkpointing")),
    )
    if memory is None:
        return None
    disk = None
    if load.n_trainable is not None:
        n_saved = None if load.adapter is None else load.n_trainable
        disk = checkpoint_bytes(
            total,
            n_trainable=n_saved,
            dtype=dtype,
            optim=training["optim"],
            zero_stage=strategy.stage,
            saves_whole=peft_part(load.adapter) is None,
        )
    return Need(strategy, memory, disk)
