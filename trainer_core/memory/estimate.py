"""How much memory a run needs on each device and on its host, and how much disk a checkpoint: estimates, said as such.

Model states agree with DeepSpeed's own estimators (runtime/zero/stage_1_and_2.py and stage3.py,
`estimate_zero*_model_states_mem_needs`); activations are added up by hand. One node is assumed. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trainer_core.contract import AnyAdapter, Quantization, peft_part
from trainer_core.memory.quantised import quantised_bytes
from trainer_core.memory.shape import Shape, count_parameters, read_shape
from trainer_core.memory.trained import count_trained

__all__ = ["MemoryEstimate", "checkpoint_bytes", "count_parameters", "estimate"]

Dtype = Literal["float32", "bfloat16", "float16"]

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}

HOST_FACTOR = 1.5
"""DeepSpeed's additional_buffer_factor: what allocators and pinned buffers add on the host."""

_MOMENTS = {"sgd": 0.0, "rmsprop": 1.0, "adagrad": 1.0, "adafactor": 0.01}
"""Optimizer -> state numbers a parameter; Adam's two where it is not named. Adafactor keeps a row and a column."""
_QUARTER = ("8bit", "4bit")


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes a device needs at the peak of a step, by what they hold, and bytes on the host for all its processes."""

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    """Moments, and the fp32 master weights that ZeRO keeps beside them."""
    activations_bytes: int
    logits_bytes: int
    buffers_bytes: int
    """Communication buckets; at ZeRO-3 the gathered largest module."""
    device_bytes: int
    host_bytes: int

    @property
    def model_states_bytes(self) -> int:
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes


def estimate(
    model_config: Mapping[str, Any],
    n_parameters: int | None,
    *,
    adapter: AnyAdapter | None,
    dtype: Dtype,
    zero_stage: int | None,
    offload: Literal["none", "optimizer", "all"],
    n_processes: int,
    per_device_batch: int,
    max_length: int,
    optim: str,
    gradient_checkpointing: bool,
    quantization: Quantization | None = None,
) -> MemoryEstimate | None:
    """The estimate, or null where neither the model's type nor `n_parameters` says how large it is.

    `dtype` is the precision the weights are held in; `zero_stage` null means plain data parallelism. For a model type
    that is not known, activations and logits are 0 and the states alone are told.
    """
    shape = read_shape(model_config)
    total = n_parameters if n_parameters is not None else (shape.n_parameters if shape else None)
    if total is None:
        return None
    # An adapter on a model of unknown shape: a hundredth of the weights, the order of LoRA at its usual ranks.
    told = total if adapter is None else count_trained(model_config, adapter)
    trained = max(1, total // 100) if told is None else told
    added = 0 if peft_part(adapter) is None else trained
    held = total + added
    width, moments = BYTES[dtype], _moments_bytes(optim, BYTES[dtype] if zero_stage is None else 4)
    if zero_stage is None:
        states = _Bytes(width * held, width * trained, moments * trained, 0)
    else:
        states = _zero_states(held, trained, width, moments, zero_stage, offload, n_processes)
    parameters = states.parameters
    if quantization is not None:  # the adapter is float32 beside it
        parameters = quantised_bytes(shape, total, quantization) + 4 * added
    buffers = _buffers(shape, trained, width, zero_stage, n_processes)
    activations = _activations(shape, width, per_device_batch, max_length, gradient_checkpointing)
    logits = _logits(shape, width, per_device_batch, max_length)
    host = states.host or _host_bytes(held, zero_stage, n_processes, shape)
    parts = {
        "parameters_bytes": int(parameters),
        "gradients_bytes": int(states.gradients),
        "optimizer_bytes": int(states.optimizer),
        "activations_bytes": int(activations),
        "logits_bytes": int(logits),
        "buffers_bytes": int(buffers),
    }
    return MemoryEstimate(**parts, device_bytes=sum(parts.values()), host_bytes=int(host))


def checkpoint_bytes(
    n_parameters: int,
    *,
    n_trainable: int | None,
    dtype: Dtype,
    optim: str,
    zero_stage: int | None,
    saves_whole: bool = False,
) -> int:
    """Disk a checkpoint takes: weights, moments, ZeRO's master copy. Of an adapter's weights its own `n_trainable`
    alone, unless it `saves_whole`.

    Measured form: HF's weights file; optimizer.pt under DDP; under ZeRO the shards hold fp32 masters and moments and
    the module states once more (DeepSpeed leaves frozen weights out for adapters).
    """
    trained = n_parameters if n_trainable is None else n_trainable
    saved = n_parameters if saves_whole else trained
    width = BYTES[dtype]
    if zero_stage is None:
        return int(saved * width + trained * _moments_bytes(optim, width))
    return int(saved * 2 * width + trained * (4 + _moments_bytes(optim, 4)))


# Model states ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bytes:
    parameters: float
    gradients: float
    optimizer: float
    host: float


def _zero_states(
    held: int, trained: int, width: int, moments: float, stage: int, offload: str, n_processes: int
) -> _Bytes:
    """ZeRO's partitions (Rajbhandari et al., "ZeRO", 2020, section 3), in the bytes DeepSpeed's estimators count.

    At 16 bits a trained parameter costs 2 for itself, 2 + 4 for gradients (16 and 32 bits), 4 for the master copy and
    8 for Adam's moments; stage 3 counts the gradients once, at 32 bits. At 32 bits there is one gradient of 4.
    """
    share = 1 / n_processes
    gradients = (width + 4 if width == 2 and stage < 3 else 4) * trained
    optimizer = (4 + moments) * trained
    parameters = width * held * (share if stage == 3 else 1)
    if offload == "none":
        states = gradients * (share if stage >= 2 else 1), optimizer * (share if stage >= 1 else 1)
        return _Bytes(parameters, *states, 0)
    # DeepSpeed moves gradients and optimizer to the host; `all` moves the parameters too (stage 3).
    # Below stage 3 each process holds fp32 weights on the host while it loads.
    per_parameter = 8 + moments + (width if offload == "all" else 0)
    per_parameter = per_parameter if stage == 3 else max(4 * n_processes, per_parameter)
    frozen = width * (held - trained) if offload == "all" else 0
    return _Bytes(0 if offload == "all" else parameters, 0, 0, (per_parameter * trained + frozen) * HOST_FACTOR)


def _host_bytes(held: int, zero_stage: int | None, n_processes: int, shape: Shape | None) -> float:
    """While the model is loaded: each process holds fp32 weights, except at ZeRO-3, which loads module by module."""
    if zero_stage == 3 and shape is not None:
        return shape.n_largest_module_parameters * 4 * n_processes * HOST_FACTOR
    return held * 4 * n_processes * HOST_FACTOR


def _moments_bytes(optim: str, width: int) -> float:
    """Optimizer state a trained parameter, in bytes."""
    if any(word in optim for word in _QUARTER):
        return 2.0
    if optim.startswith(("lion", "paged_lion")):
        return float(width)
    return _MOMENTS.get(optim, 2.0) * width


def _buffers(shape: Shape | None, trained: int, width: int, zero_stage: int | None, n_processes: int) -> float:
    """DDP's buckets hold a copy of the gradients; ZeRO-3 gathers its largest module, at 4 bytes a parameter."""
    if zero_stage == 3:
        return 4 * shape.n_largest_module_parameters if shape is not None else 0
    if zero_stage is None and n_processes > 1:
        return width * trained
    return 0


# Activations -------------------------------------------------------------------------------------------------------


def _activations(shape: Shape | None, width: int, batch: int, length: int, checkpointing: bool) -> float:
    """What the backward pass needs of all blocks, or with checkpointing of each block's input and one whole block.

    Added up from the layers' saved inputs with a fused attention (no length x length matrix), after Korthikanti et al.,
    "Reducing activation recomputation" (2022), section 4: norms and both their fp32 forms, the inputs of q, k, v and
    of the output projection, q, k and v for the attention, and the MLP's input and inner values. Measured against
    autograd (2026-11-30): 1.0 to 1.3 times what it keeps. Dropout inside the attention (GPT-2's default), where no
    fused kernel has it, adds a matrix that is not counted here.
    """
    if shape is None:
        return 0
    tokens = batch * length
    norms = 2 * (width + 4 + 4) * shape.hidden
    attention = width * (shape.hidden + 2 * shape.q_width + 2 * shape.kv_width + shape.q_width)
    inner = 4 if shape.is_gated else 5  # gelu_new, written out in the model, keeps its steps
    mlp = width * (shape.hidden + inner * shape.intermediate)
    block = tokens * (norms + attention + mlp)
    if checkpointing:
        return shape.n_layers * tokens * width * shape.hidden + block
    return shape.n_layers * block


def _logits(shape: Shape | None, width: int, batch: int, length: int) -> float:
    """The output layer's values, their fp32 form where they are 16 bits, the log-softmax and its gradient."""
    if shape is None:
        return 0
    each = 12 if width == 4 else width + 12
    return batch * length * shape.vocabulary * each
