"""Every key of a DeepSpeed configuration, at every depth: what it takes, who owns it, or why it is refused.

Written from DeepSpeed 0.19.8 (runtime/config.py, runtime/constants.py, zero/config.py, zero/offload_config.py,
precision_config.py and the config modules they name). A test walks those and proves that no key is missing. Torch-free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ALL_STAGES = (0, 1, 2, 3)


@dataclass(frozen=True)
class Key:
    """A key that may be given."""

    kind: Literal["bool", "count", "number", "text", "names", "choice", "pair"]
    choices: tuple[str, ...] = ()
    stages: tuple[int, ...] = ALL_STAGES
    """ZeRO stages at which it acts; at others it is refused, not ignored."""
    cuda_only: bool = False
    auto: bool = False
    """Whether "auto" may stand here: completed from the job, or by the Trainer from the model's hidden size."""
    at_least: float = 0


@dataclass(frozen=True)
class Refused:
    """A key that DeepSpeed knows or knew and a job may not give."""

    reason: str
    successor: str | None = None


Block: TypeAlias = "dict[str, Key | Refused | Block]"

_BOOL, _COUNT, _TEXT, _NAMES, _NUMBER = Key("bool"), Key("count"), Key("text"), Key("names"), Key("number")
_OWNED_COUNT = Key("count", auto=True, at_least=1)
_OWNED_NUMBER = Key("number", auto=True)
_OWNED_SWITCH = Key("bool", auto=True)
_S1, _S12, _S3 = (1,), (1, 2), (3,)
_ZERO = (1, 2, 3)
_DTYPE = Key("choice", ("fp32", "fp16", "bf16"))

_REMOVED = Refused("was removed from DeepSpeed")
_TRACKERS = Refused("metrics go to the service and are read there; other trackers are not served")
_ENGINE = Refused("drives another engine than the Trainer's and would not act")
_PARALLEL = Refused("a job's processes are data parallel; other kinds of parallelism are not served")
_DATA = Refused("rows are read and ordered by the service")
_OTHER_NAME = "is the attribute's name; the configuration's key is another"

OFFLOAD_OPTIMIZER: Block = {
    "device": Key("choice", ("none", "cpu", "nvme"), _ZERO), "nvme_path": _TEXT, "buffer_count": _COUNT,
    "pin_memory": _BOOL, "pipeline_read": _BOOL, "pipeline_write": _BOOL, "fast_init": _BOOL,
    "ratio": Key("number", stages=_S3), "super_offload": Key("bool", stages=_S3, cuda_only=True),
    "cpuadam_cores_perc": Refused("acts only with DeepSpeed's own CPU Adam, and the optimizer is training.optim"),
}  # fmt: skip
OFFLOAD_PARAM: Block = {
    "device": Key("choice", ("none", "cpu", "nvme"), _S3), "nvme_path": _TEXT, "buffer_count": _COUNT,
    "buffer_size": _COUNT, "max_in_cpu": _COUNT, "pin_memory": _BOOL,
}  # fmt: skip

ZERO_OPTIMIZATION: Block = {
    "stage": Key("count", auto=True),
    "contiguous_gradients": Key("bool", stages=_ZERO), "reduce_scatter": Key("bool", stages=_ZERO),
    "reduce_bucket_size": Key("count", stages=_ZERO, auto=True, at_least=1),
    "use_multi_rank_bucket_allreduce": Key("bool", stages=_S12), "allgather_partitions": Key("bool", stages=_S12),
    "allgather_bucket_size": Key("count", stages=_ZERO), "overlap_comm": Key("bool", stages=_ZERO),
    "compute_grad_norm": Refused("the gradient norm is recorded at every step"),
    "load_from_fp32_weights": Key("bool", stages=_ZERO), "elastic_checkpoint": _REMOVED,
    "offload_param": OFFLOAD_PARAM, "offload_optimizer": OFFLOAD_OPTIMIZER,
    "zenflow": Refused("asynchronous updates are not served"), "sub_group_size": Key("count", stages=_S3),
    "cpu_offload": Refused("is deprecated", "offload_optimizer"),
    "cpu_offload_param": Refused("is deprecated", "offload_param"),
    "cpu_offload_use_pin_memory": Refused("is deprecated", "offload_optimizer.pin_memory"),
    "stage3_gather_fp16_weights_on_model_save": Refused("is deprecated", "stage3_gather_16bit_weights_on_model_save"),
    "stage3_prefetch_bucket_size": Key("count", stages=_S3, auto=True),
    "stage3_param_persistence_threshold": Key("count", stages=_S3, auto=True),
    "stage3_model_persistence_threshold": Key("count", stages=_S3),
    "stage3_max_live_parameters": Key("count", stages=_S3), "stage3_max_reuse_distance": Key("count", stages=_S3),
    "stage3_gather_16bit_weights_on_model_save": Key("bool", stages=_S3),
    "stage3_module_granularity_threshold": Key("count", stages=_S3),
    "stage3_use_all_reduce_for_fetch_params": Key("bool", stages=_S3),
    "stage3_allgather_sequential": Key("bool", stages=_S3),
    "prefetch_bucket_size": Refused(_OTHER_NAME, "stage3_prefetch_bucket_size"),
    "param_persistence_threshold": Refused(_OTHER_NAME, "stage3_param_persistence_threshold"),
    "model_persistence_threshold": Refused(_OTHER_NAME, "stage3_model_persistence_threshold"),
    "max_live_parameters": Refused(_OTHER_NAME, "stage3_max_live_parameters"),
    "max_reuse_distance": Refused(_OTHER_NAME, "stage3_max_reuse_distance"),
    "gather_16bit_weights_on_model_save": Refused(_OTHER_NAME, "stage3_gather_16bit_weights_on_model_save"),
    "module_granularity_threshold": Refused(_OTHER_NAME, "stage3_module_granularity_threshold"),
    "use_all_reduce_for_fetch_params": Refused(_OTHER_NAME, "stage3_use_all_reduce_for_fetch_params"),
    "allgather_sequential": Refused(_OTHER_NAME, "stage3_allgather_sequential"),
    "ignore_unused_parameters": Key("bool", stages=_S12), "legacy_stage1": _REMOVED,
    "round_robin_gradients": Key("bool", stages=_S12), "parameter_alignment": Key("bool", stages=_S12),
    "zero_hpz_partition_size": Key("count", stages=_S3, at_least=1),
    "zero_quantized_weights": Key("bool", stages=_S3, cuda_only=True),
    "zero_quantized_nontrainable_weights": Key("bool", stages=_S3, cuda_only=True),
    "zero_quantized_gradients": Key("bool", stages=_S3, cuda_only=True),
    "memory_efficient_linear": Key("bool", stages=_S3), "pipeline_loading_checkpoint": _ENGINE,
    "override_module_apply": Key("bool", stages=_S3), "log_trace_cache_warnings": Key("bool", stages=_S3),
    "enable_sanity_checks": _BOOL, "save_muon_momentum_buffer_in_memory": Refused("the optimizer is training.optim"),
    "leaf_module": {"classes": Key("names", stages=_S3), "names": Key("names", stages=_S3),
                    "name_suffixes": Key("names", stages=_S3)},
    "aio": Refused("stands beside zero_optimization, not in it", "aio (at the top of the block)"),
    "mics_shard_size": _REMOVED, "mics_hierarchical_params_gather": _REMOVED, "zeropp_loco_param": _REMOVED,
}  # fmt: skip

OPTIMIZER_PARAMS: Block = {
    "lr": _OWNED_NUMBER, "betas": Key("pair", auto=True), "eps": _OWNED_NUMBER, "weight_decay": _OWNED_NUMBER,
    "torch_adam": _BOOL, "adam_w_mode": _BOOL, "amsgrad": _BOOL,
    "bias_correction": Refused("torch's AdamW always corrects the bias"),
    "max_grad_norm": Refused("is no optimizer parameter in DeepSpeed", "training.max_grad_norm"),
    "fp32_optimizer_states": Refused("acts only with DeepSpeed's own CPU Adam, and the optimizer is training.optim"),
    "foreach": _BOOL,
}  # fmt: skip
OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW"}
"""Optimizers that may be named in the block: both are torch's AdamW there. Others are asked for by training.optim."""

_WARMUP: Block = {
    "warmup_num_steps": Key("count", auto=True, at_least=1),
    "warmup_type": Key("choice", ("log", "linear")),
    "last_batch_iteration": Key("number", at_least=-1),
}
_WARMUP_RATES: Block = {"warmup_min_lr": _OWNED_NUMBER, "warmup_max_lr": _OWNED_NUMBER}
SCHEDULERS: dict[str, tuple[str, Block]] = {
    "WarmupLR": ("constant_with_warmup", {**_WARMUP, **_WARMUP_RATES}),
    "WarmupDecayLR": ("linear", {**_WARMUP, **_WARMUP_RATES, "total_num_steps": _OWNED_COUNT}),
    "WarmupCosineLR": (
        "cosine",
        {**_WARMUP, "total_num_steps": _OWNED_COUNT, "warmup_min_ratio": _NUMBER, "cos_min_ratio": _NUMBER},
    ),
}
"""DeepSpeed's schedule -> the lr_scheduler_type it stands for, and its parameters."""

SCHEMA: Block = {
    "train_batch_size": _OWNED_COUNT, "train_micro_batch_size_per_gpu": _OWNED_COUNT,
    "gradient_accumulation_steps": _OWNED_COUNT, "gradient_clipping": _OWNED_NUMBER,
    "optimizer": {"type": _TEXT, "params": OPTIMIZER_PARAMS, "legacy_fusion": Refused("is for FP16 without ZeRO")},
    "scheduler": {"type": _TEXT, "params": {}},
    "fp16": {"enabled": _OWNED_SWITCH, "auto_cast": _BOOL, "loss_scale": _NUMBER, "initial_scale_power": _COUNT,
             "loss_scale_window": Key("count", at_least=1), "hysteresis": _COUNT, "consecutive_hysteresis": _BOOL,
             "min_loss_scale": Key("count", at_least=1), "fp16_master_weights_and_grads": Refused(
                 "needs DeepSpeed's own CPU Adam, and the optimizer is training.optim")},
    "bf16": {"enabled": _OWNED_SWITCH, "immediate_grad_update": _BOOL, "check_grad_overflow": _BOOL,
             "bf16_master_weights_and_grads": Key("bool", stages=_ZERO),
             "bf16_optimizer_states": Key("bool", stages=_ZERO)},
    "bfloat16": Refused("is the older name", "bf16"),
    "torch_autocast": Refused("precision is training.bf16 or training.fp16"), "amp": _REMOVED,
    "communication_data_type": _DTYPE, "seq_parallel_communication_data_type": _PARALLEL,
    "prescale_gradients": _BOOL, "gradient_predivide_factor": Key("number", at_least=1e-6),
    "gradient_allreduce_op": Refused("gradients are averaged; a sum would change the rate"),
    "managed_gradient_accumulation": Refused("the Trainer manages the accumulation"),
    "disable_allgather": _BOOL, "steps_per_print": Key("count", at_least=1), "dump_state": _BOOL,
    "disable_python_gc": _BOOL, "wall_clock_breakdown": _BOOL, "memory_breakdown": _BOOL, "vocabulary_size": _COUNT,
    "log_level": Refused("the service captures every rank's output"),
    "dataloader_drop_last": Refused("the Trainer loads the rows", "training.dataloader_drop_last"),
    "zero_optimization": ZERO_OPTIMIZATION,
    "zero_allow_untested_optimizer": _BOOL, "zero_force_ds_cpu_optimizer": _BOOL,
    "aio": {"block_size": _COUNT, "queue_depth": _COUNT, "intra_op_parallelism": _COUNT, "thread_count": Refused(
        "is the older name", "intra_op_parallelism"), "single_submit": _BOOL, "overlap_events": _BOOL,
        "use_gds": Key("bool", cuda_only=True)},
    "checkpoint": {"tag_validation": Key("choice", ("Ignore", "Warn", "Fail", "IGNORE", "WARN", "FAIL")),
                   "use_node_local_storage": _BOOL, "parallel_write": {"pipeline_stage": _ENGINE},
                   "load_universal": Refused("the service chooses the checkpoint to resume from"),
                   "checkpoint_serialization": _BOOL, "writer": Refused(
                       "checkpoints are written plainly and verified")},
    "data_types": {"grad_accum_dtype": _DTYPE, "param_dtype": _DTYPE, "buffer_dtype": _DTYPE,
                   "keep_in_fp32_modules": _NAMES},
    "comms_logger": {"enabled": _BOOL, "verbose": _BOOL, "prof_all": _BOOL, "debug": _BOOL, "prof_ops": _NAMES},
    "flops_profiler": {"enabled": _BOOL, "recompute_fwd_factor": _NUMBER, "profile_step": _COUNT, "module_depth": Key(
        "number", at_least=-1), "top_modules": _COUNT, "detailed": _BOOL, "output_file": Refused(
        "the profile goes to the rank's log")},
    "timers": {"throughput": {"enabled": _BOOL, "synchronized": _BOOL}},
    "activation_checkpointing": Refused("would not act on these models", "training.activation_checkpointing"),
    "compile": Refused("is asked for in the training options", "training.torch_compile"),
    "tensorboard": _TRACKERS, "wandb": _TRACKERS, "csv_monitor": _TRACKERS, "comet": _TRACKERS, "mlflow": _TRACKERS,
    "monitor_config": _TRACKERS,
    "autotuning": Refused("the batch is fixed at submit"), "pipeline": _ENGINE, "hybrid_engine": _ENGINE,
    "use_data_before_expert_parallelism": _PARALLEL, "expert_parallel": _PARALLEL, "tensor_parallel": _PARALLEL,
    "sequence_parallel_size": _PARALLEL, "weight_quantization": _ENGINE, "inference": _ENGINE,
    "data_efficiency": _DATA, "datastates_ckpt": Refused("checkpoints are written plainly and verified"),
    "nebula": _REMOVED, "compression_training": _REMOVED, "quantize_training": _REMOVED, "sparse_gradients": _REMOVED,
    "eigenvalue": _REMOVED, "sparse_attention": _REMOVED, "elasticity": _REMOVED, "graph_harvesting": _REMOVED,
    "curriculum_learning": _REMOVED, "progressive_layer_drop": _REMOVED,
}  # fmt: skip

OWNERS: dict[str, str] = {
    "train_batch_size": "per_device_train_batch_size x gradient_accumulation_steps x n_processes",
    "train_micro_batch_size_per_gpu": "training.per_device_train_batch_size",
    "gradient_accumulation_steps": "training.gradient_accumulation_steps",
    "gradient_clipping": "training.max_grad_norm",
    "optimizer.params.lr": "training.learning_rate",
    "optimizer.params.betas": "training.adam_beta1 and adam_beta2",
    "optimizer.params.eps": "training.adam_epsilon",
    "optimizer.params.weight_decay": "training.weight_decay",
    "scheduler.params.warmup_max_lr": "training.learning_rate",
    "scheduler.params.warmup_num_steps": "training.warmup_steps",
    "scheduler.params.total_num_steps": "training.max_steps, or the steps the rows and num_train_epochs make",
    "fp16.enabled": "training.fp16",
    "bf16.enabled": "training.bf16",
    "zero_optimization.stage": "parallel.zero_stage",
}
"""Keys with two possible owners -> the job's field that owns the number."""
