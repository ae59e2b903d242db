"""Every training option that is accepted: its kind, bounds, the service's default, and what it does.

Names are those of the installed release of transformers (5.x); older names are translated or refused by
`arguments_gone.py`. A test walks the release's own list and proves that no name is missing. Torch-free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["bool", "whole", "number", "cadence", "choice", "text", "object", "warmup", "max_steps", "generation"]

UNSET: Any = None
"""No default of the service's own: the release's stands."""


@dataclass(frozen=True)
class Option:
    """One accepted option."""

    name: str
    kind: Kind
    doc: str
    default: Any = UNSET
    """What the service writes when the option is not given; null leaves the release's own default."""
    at_least: float | None = None
    over: float | None = None
    at_most: float | None = None
    under: float | None = None
    choices: tuple[str, ...] = ()
    only: Literal["cuda", "ddp", ""] = ""
    """Acts only on CUDA devices, or only without DeepSpeed."""


OPTIMIZERS: dict[str, str | None] = {
    "adamw_torch": None, "adamw_torch_fused": None, "adafactor": None, "sgd": None, "adagrad": None, "rmsprop": None,
    "adamw_torch_xla": "torch_xla", "adamw_torch_npu_fused": "torch_npu", "adamw_anyprecision": "torchdistx",
    "adamw_torch_4bit": "torchao", "adamw_torch_8bit": "torchao", "adamw_bnb_8bit": "bitsandbytes",
    "adamw_8bit": "bitsandbytes", "ademamix": "bitsandbytes", "ademamix_8bit": "bitsandbytes",
    "lion_8bit": "bitsandbytes", "lion_32bit": "bitsandbytes", "paged_adamw_32bit": "bitsandbytes",
    "paged_adamw_8bit": "bitsandbytes", "paged_ademamix_32bit": "bitsandbytes", "paged_ademamix_8bit": "bitsandbytes",
    "paged_lion_32bit": "bitsandbytes", "paged_lion_8bit": "bitsandbytes", "rmsprop_bnb": "bitsandbytes",
    "rmsprop_bnb_8bit": "bitsandbytes", "rmsprop_bnb_32bit": "bitsandbytes", "galore_adamw": "galore_torch",
    "galore_adamw_8bit": "galore_torch", "galore_adafactor": "galore_torch", "galore_adamw_layerwise": "galore_torch",
    "galore_adamw_8bit_layerwise": "galore_torch", "galore_adafactor_layerwise": "galore_torch", "lomo": "lomo_optim",
    "adalomo": "lomo_optim", "grokadamw": "grokadamw", "schedule_free_radam": "schedulefree",
    "schedule_free_adamw": "schedulefree", "schedule_free_sgd": "schedulefree", "apollo_adamw": "apollo_torch",
    "apollo_adamw_layerwise": "apollo_torch", "stable_adamw": "optimi",
}  # fmt: skip
"""Optimizer -> the package it needs beyond the trainer's own, or null."""

_PLATEAU = frozenset({"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"})
_COSINE_FLOOR = frozenset({"num_cycles", "min_lr", "min_lr_rate"})
SCHEDULERS: dict[str, frozenset[str]] = {
    "linear": frozenset(),
    "cosine": frozenset({"num_cycles"}),
    "cosine_with_restarts": frozenset({"num_cycles"}),
    "polynomial": frozenset({"lr_end", "power"}),
    "constant": frozenset(),
    "constant_with_warmup": frozenset(),
    "inverse_sqrt": frozenset({"timescale"}),
    "reduce_lr_on_plateau": _PLATEAU,
    "cosine_with_min_lr": _COSINE_FLOOR,
    "cosine_warmup_with_min_lr": _COSINE_FLOOR | {"warmup_lr_rate"},
    "warmup_stable_decay": frozenset(
        {"num_decay_steps", "num_stable_steps", "warmup_type", "decay_type", "min_lr_ratio", "num_cycles"}
    ),
    "greedy": _PLATEAU | {"warmup", "max_lr", "smooth", "window_size", "reset_start", "verbose"},
}
"""Schedule -> the keys of lr_scheduler_kwargs it takes (signatures in transformers.optimization)."""

NEEDED_SCHEDULER_KEYS: dict[str, tuple[frozenset[str], ...]] = {
    "cosine_with_min_lr": (frozenset({"min_lr", "min_lr_rate"}),),
    "cosine_warmup_with_min_lr": (frozenset({"min_lr", "min_lr_rate"}),),
    "warmup_stable_decay": (frozenset({"num_decay_steps"}),),
}
"""Schedule -> groups of which exactly one key must be given."""

NO_WARMUP_SCHEDULERS = frozenset({"constant", "reduce_lr_on_plateau", "greedy"})
"""Schedules that never look at warmup_steps."""

EVALUATION_SCHEDULERS = frozenset({"reduce_lr_on_plateau", "greedy"})
"""Schedules driven by the evaluation."""

_STEP_KINDS = ("no", "steps", "epoch")

_OPTIONS = (
    # Length and batch
    Option("num_train_epochs", "number", "Passes over the train rows; a part of one is allowed.", 3.0, over=0),
    Option("max_steps", "max_steps", "Optimizer steps; wins over num_train_epochs. -1 or null: not set."),
    Option("per_device_train_batch_size", "whole", "Rows a device takes at once.", 4, at_least=1, at_most=65536),
    Option(
        "gradient_accumulation_steps",
        "whole",
        "Batches summed before one optimizer step.",
        1,
        at_least=1,
        at_most=65536,
    ),
    Option("dataloader_drop_last", "bool", "Leave out the last, incomplete batch of an epoch."),
    Option(
        "train_sampling_strategy",
        "choice",
        "Order of the rows.",
        "random",
        choices=("random", "sequential", "group_by_length"),
    ),
    # Rate and optimizer
    Option(
        "learning_rate",
        "number",
        "Peak rate; unset: 2e-5 for full weights, 2e-4 for LoRA; docs/adapters.md.",
        over=0,
        at_most=100,
    ),
    Option("lr_scheduler_type", "choice", "Shape of the rate.", "cosine", choices=tuple(SCHEDULERS)),
    Option("lr_scheduler_kwargs", "object", "Further numbers of the schedule; see the table of schedules."),
    Option(
        "warmup_steps",
        "warmup",
        "Steps of linear warm-up; under 1: a share of all steps. Unset: 0.03; 0 in short runs.",
    ),
    Option(
        "optim", "choice", "Optimizer; unset: adamw_torch_fused on CUDA, adamw_torch on CPU.", choices=tuple(OPTIMIZERS)
    ),
    Option("optim_args", "text", "`key=value, key=value` for the optimizers of other packages."),
    Option("optim_target_modules", "text", "Module names for GaLore and APOLLO: text or a list of text."),
    Option("weight_decay", "number", "Decoupled weight decay.", 0.0, at_least=0, under=1),
    Option("adam_beta1", "number", "First moment's decay.", at_least=0, under=1),
    Option("adam_beta2", "number", "Second moment's decay.", at_least=0, under=1),
    Option("adam_epsilon", "number", "Added to the denominator.", over=0, at_most=1),
    Option("max_grad_norm", "number", "Gradients are clipped to this norm; 0: not at all.", 1.0, at_least=0),
    Option("label_smoothing_factor", "number", "Label smoothing.", at_least=0, under=1),
    Option("neftune_noise_alpha", "number", "NEFTune noise on the embeddings.", over=0),
    # Precision, memory and speed
    Option("bf16", "bool", "bfloat16 mixed precision; unset: where the hardware has it."),
    Option("fp16", "bool", "float16 mixed precision.", only="cuda"),
    Option("bf16_full_eval", "bool", "Evaluate in pure bfloat16."),
    Option("fp16_full_eval", "bool", "Evaluate in pure float16.", only="cuda"),
    Option("tf32", "bool", "TF32 matrix products on Ampere and newer.", only="cuda"),
    Option(
        "activation_checkpointing",
        "bool",
        "Compute activations again in the backward pass: less memory, about a third slower.",
    ),
    Option("activation_checkpointing_kwargs", "object", "Arguments of torch.utils.checkpoint, such as use_reentrant."),
    Option("torch_compile", "bool", "Compile the model; once, minutes; needs a C++ compiler on the node."),
    Option(
        "torch_compile_backend",
        "choice",
        "Back end of torch_compile.",
        choices=("inductor", "eager", "aot_eager", "cudagraphs"),
    ),
    Option(
        "torch_compile_mode",
        "choice",
        "Mode of torch_compile.",
        choices=("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
    ),
    Option("use_liger_kernel", "bool", "Liger's fused kernels; needs the package liger_kernel.", only="cuda"),
    Option("liger_kernel_config", "object", "Kernels switched on or off, with use_liger_kernel."),
    Option("use_cache", "bool", "Keep the key/value cache in training; wastes memory."),
    Option(
        "torch_empty_cache_steps", "whole", "Empty the allocator's cache every so many steps.", at_least=1, only="cuda"
    ),
    Option("full_determinism", "bool", "Deterministic algorithms only; slower."),
    # Cadence
    Option("logging_strategy", "choice", "When training figures are reported.", "steps", choices=("steps", "epoch")),
    Option("logging_steps", "cadence", "Steps between two reports; under 1: a share of all steps.", 1),
    Option("logging_first_step", "bool", "Report step 1 too."),
    Option(
        "eval_strategy",
        "choice",
        "When the eval rows are evaluated; unset: steps where there are eval rows.",
        choices=_STEP_KINDS,
    ),
    Option("eval_steps", "cadence", "Steps between two evaluations; under 1: a share. Unset: a tenth of all steps."),
    Option("eval_delay", "number", "No evaluation before this step (or epoch).", at_least=0),
    Option("eval_on_start", "bool", "Evaluate before the first step."),
    Option("eval_accumulation_steps", "whole", "Batches of predictions kept on the device.", at_least=1),
    Option(
        "per_device_eval_batch_size",
        "whole",
        "Rows a device evaluates at once; unset: as in training.",
        at_least=1,
        at_most=65536,
    ),
    Option(
        "save_strategy", "choice", "When a checkpoint is saved; unset: as the evaluation.", choices=("steps", "epoch")
    ),
    Option("save_steps", "cadence", "Steps between two checkpoints; under 1: a share. Unset: as eval_steps."),
    # Data loading and processes
    Option("data_seed", "whole", "Seed of the row order; unset: the job's seed.", at_least=0, at_most=2**32 - 1),
    Option("dataloader_num_workers", "whole", "Loader processes a device.", 0, at_least=0, at_most=64),
    Option("dataloader_pin_memory", "bool", "Page-locked host memory for batches."),
    Option("dataloader_persistent_workers", "bool", "Keep loader processes between epochs."),
    Option("dataloader_prefetch_factor", "whole", "Batches a loader process prepares ahead.", at_least=1, at_most=64),
    Option(
        "dataloader_multiprocessing_context",
        "choice",
        "How loader processes start.",
        choices=("fork", "spawn", "forkserver"),
    ),
    Option("dataloader_in_order", "bool", "Keep the order of batches from several loader processes."),
    Option("ddp_timeout", "whole", "Seconds after which a stuck collective fails.", at_least=10, at_most=604800),
    Option("ddp_find_unused_parameters", "bool", "Look for parameters without a gradient.", only="ddp"),
    Option("ddp_bucket_cap_mb", "whole", "Size of DDP's buckets in MB.", at_least=1, only="ddp"),
    Option("ddp_broadcast_buffers", "bool", "Broadcast buffers at each forward pass.", only="ddp"),
    Option("ddp_static_graph", "bool", "The graph is the same at every step.", only="ddp"),
)

ACCEPTED: dict[str, Option] = {option.name: option for option in _OPTIONS}

_GENERATING = (
    Option("predict_with_generate", "bool", "Generate in every evaluation, for BLEU, chrF and ROUGE."),
    Option("generation_max_length", "whole", "Longest text to generate, in tokens; unset: as generation_config says.",
           at_least=2, at_most=65536),
    Option("generation_num_beams", "whole", "Beams; unset: as generation_config says.", at_least=1, at_most=64),
    Option("generation_config", "generation", "GenerationConfig's settings by name, in place of the model's own."),
)  # fmt: skip
GENERATING: dict[str, Option] = {option.name: option for option in _GENERATING}
"""Of Seq2SeqTrainingArguments: accepted by the method that generates while it evaluates, and by no other."""

CHECKPOINTING_KEYS = frozenset({"use_reentrant", "preserve_rng_state", "determinism_check", "debug", "early_stop"})
"""What torch.utils.checkpoint.checkpoint takes by name and JSON can say."""

TAKEN_OVER_HERE = ("seed", "metric_for_best_model", "greater_is_better", "load_best_model_at_end", "save_total_limit")
"""Read by `arguments.resolve` itself: they become fields of its answer, or promises of the service."""

LEARNING_RATE_FULL = 2e-5
LEARNING_RATE_ADAPTER = 2e-4
"""LoRA learns best at about ten times the full rate (Schulman et al., "LoRA without regret", 2025)."""
LEARNING_RATES = {
    "lora": LEARNING_RATE_ADAPTER,
    "ia3": 3e-3,
    "prompt_tuning": 3e-2,
    "prefix_tuning": 1e-2,
    "p_tuning": 1e-3,
    "freeze": LEARNING_RATE_FULL,
}
"""By type of adapter. IA3: Liu et al., "Few-Shot Parameter-Efficient Fine-Tuning", 2022; prompts: PEFT's examples."""


def default_rate(adapter_type: str | None) -> float:
    """The learning rate where a job gives none; null: every weight is trained."""
    return LEARNING_RATE_FULL if adapter_type is None else LEARNING_RATES.get(adapter_type, LEARNING_RATE_ADAPTER)


WARMUP_SHARE = 0.03
SHORT_RUN = 10
"""Under so many max_steps there is no warm-up by default: its first step has rate 0, and a short run has few."""
CADENCE_SHARE = 0.1
"""Ten evaluations and checkpoints a run, whatever its length."""
