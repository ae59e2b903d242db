"""Every training option that is not taken as it stands: renamed, owned by the service, or gone from the release.

Covers the names of transformers 4.37 to 5.24 together with `arguments_table.ACCEPTED`. Torch-free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

RENAMED = {
    "evaluation_strategy": "eval_strategy",
    "warmup_ratio": "warmup_steps",
    "group_by_length": "train_sampling_strategy",
    "gradient_checkpointing": "activation_checkpointing",
    "gradient_checkpointing_kwargs": "activation_checkpointing_kwargs",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "adafactor": "optim",
    "torchdynamo": "torch_compile_backend",
}
"""Older name -> the release's name; values are translated by `arguments_read.translate`."""


@dataclass(frozen=True)
class Refused:
    """A name the job may not set. A harmless value (the release's own default) is dropped without a word."""

    reason: str
    code: str = "owned_by_service"
    harmless: tuple[Any, ...] = ()
    noted: bool = False
    """Any value is dropped with a note instead of being refused: nobody is misled, the service does it anyway."""


_FOLDERS = Refused("the run folder decides where files go; download them through the service", noted=True)
_HUB = Refused("the service does not publish to a hub: download the checkpoint and publish it yourself",
               "not_served", (False, "every_save"))  # fmt: skip
_REPORTS = Refused("metrics go to the service and are read there; other trackers are not served",
                   "not_served", ("none", [], ["none"], "huggingface", "trackio", False))  # fmt: skip
_DEVICES = Refused("devices and processes are placed by the service: see parallel.n_processes", harmless=(False, -1, 0))
_LOGS = Refused("the service captures every rank's output and follows the run by its records", noted=True)
_RESUME = Refused("the service resumes a job by itself from the newest complete checkpoint", harmless=(False,))
_WHOLE = Refused("checkpoints hold everything an exact resume needs", harmless=(False,))
_METHOD = Refused("the training method decides what is computed in an evaluation", harmless=(False, [], True))
_COLUMNS = Refused("the data reader and its collator decide the columns", noted=True)
_SHARDING = Refused("sharding is asked for in parallel: strategy deepspeed with zero_stage", "not_served",
                    (False, "", [], 0))  # fmt: skip
_HALF = Refused("left the release: precision is bf16 or fp16", "gone", ("auto", "O1", "cuda_amp"))
_DISPATCH = Refused("left the release; it would change the planned steps", "gone", (False,))
_TPU = Refused("TPUs are not served", "not_served", (False,))
_GENERATE = Refused("belongs to the sequence-to-sequence method, which generates while it evaluates", "not_served",
                    (False,))  # fmt: skip

REFUSED: dict[str, Refused] = {
    "output_dir": _FOLDERS, "logging_dir": _FOLDERS, "overwrite_output_dir": _FOLDERS, "run_name": Refused(
        "the run is named after the job: see name", noted=True),
    "push_to_hub": _HUB, "hub_token": _HUB, "hub_private_repo": _HUB, "hub_model_id": _HUB, "hub_strategy": _HUB,
    "hub_always_push": _HUB, "hub_revision": _HUB, "push_to_hub_token": _HUB, "push_to_hub_model_id": _HUB,
    "push_to_hub_organization": _HUB,
    "report_to": _REPORTS, "project": _REPORTS, "trackio_space_id": _REPORTS, "trackio_bucket_id": _REPORTS,
    "trackio_static_space_id": _REPORTS,
    "local_rank": _DEVICES, "use_cpu": _DEVICES, "no_cuda": _DEVICES, "_n_gpu": Refused(
        "is counted from parallel.n_processes", noted=True),
    "ddp_backend": Refused("the back end follows the device: gloo on CPU, NCCL on CUDA", noted=True),
    "use_mps_device": Refused("devices are CPU and CUDA", "not_served", (False,)),
    "use_ipex": Refused("left the release; plain PyTorch covers it", "gone", (False,)),
    "tpu_num_cores": _TPU, "tpu_metrics_debug": _TPU,
    "deepspeed": Refused("the DeepSpeed block is parallel.deepspeed", harmless=(False,)),
    "fsdp": _SHARDING, "fsdp_min_num_params": _SHARDING, "fsdp_transformer_layer_cls_to_wrap": _SHARDING,
    "fsdp_config": Refused(_SHARDING.reason, "not_served", ({}, {
        "min_num_params": 0, "xla": False, "xla_fsdp_v2": False, "xla_fsdp_grad_ckpt": False})),
    "parallelism_config": _SHARDING,
    "accelerator_config": Refused("the service sets how batches are split, for the planned steps depend on it",
                                  harmless=({}, {"split_batches": False, "dispatch_batches": None,
                                                 "even_batches": True, "use_seedable_sampler": True})),
    "dispatch_batches": _DISPATCH, "split_batches": _DISPATCH,
    "disable_tqdm": _LOGS, "log_level": _LOGS, "log_level_replica": _LOGS, "log_on_each_node": _LOGS,
    "skip_memory_metrics": Refused("memory is recorded by the service", noted=True),
    "logging_nan_inf_filter": Refused("a loss that is not finite is reported as it is and ends the run", noted=True),
    "include_tokens_per_second": Refused("tokens per second are always recorded", noted=True),
    "include_num_input_tokens_seen": Refused("tokens seen are always recorded", noted=True),
    "average_tokens_across_devices": Refused("every token weighs alike on all devices", harmless=(True,)),
    "debug": Refused("the release's debug hooks are not served", "not_served", ("", [])),
    "resume_from_checkpoint": _RESUME, "ignore_data_skip": _RESUME, "restore_callback_states_from_checkpoint": _RESUME,
    "save_only_model": _WHOLE, "save_on_each_node": Refused(
        "the run folder is one place: see parallel.deepspeed.checkpoint", harmless=(False,)),
    "enable_jit_checkpoint": Refused("the service stops a run by itself and asks for a checkpoint", harmless=(False,)),
    "save_safetensors": Refused("weights are always safetensors", noted=True),
    "auto_find_batch_size": Refused("the batch is fixed at submit, for the planned steps depend on it (and ZeRO-3 "
                                    "refuses it): lower per_device_train_batch_size, raise gradient_accumulation_steps",
                                    harmless=(False,)),
    "do_train": Refused("the method decides", noted=True), "do_eval": Refused(
        "evaluation is asked for by eval_strategy and eval rows", noted=True),
    "do_predict": Refused("a job trains; it does not predict", "not_served", (False,)),
    "prediction_loss_only": _METHOD, "include_for_metrics": _METHOD, "batch_eval_metrics": _METHOD,
    "eval_do_concat_batches": _METHOD, "eval_use_gather_object": _METHOD,
    "include_inputs_for_metrics": Refused("left the release (successor include_for_metrics); " + _METHOD.reason, "gone",
                                          (False,)),
    "label_names": _COLUMNS, "remove_unused_columns": _COLUMNS, "length_column_name": _COLUMNS,
    "fp16_backend": _HALF, "half_precision_backend": _HALF, "fp16_opt_level": _HALF,
    "jit_mode_eval": Refused("left the release (successor torch_compile)", "gone", (False,)),
    "past_index": Refused("left the release; models with such outputs are not served", "gone", (-1,)),
    "ray_scope": Refused("hyper-parameter search inside a run is not served", "gone", ("last",)),
    "use_legacy_prediction_loop": Refused("left the release", "gone", (False,)),
    "sortish_sampler": Refused("the release's trainers no longer read it; train_sampling_strategy group_by_length does "
                               "that", "gone", (False,)),
    "predict_with_generate": _GENERATE, "generation_max_length": _GENERATE,
    "generation_num_beams": _GENERATE, "generation_config": _GENERATE,
}  # fmt: skip

_GENERATION_NAMES = """
bad_words_ids begin_suppress_tokens bos_token_id cache_implementation constraints decoder_start_token_id
diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size encoder_repetition_penalty
eos_token_id epsilon_cutoff eta_cutoff exponential_decay_length_penalty force_words_ids forced_bos_token_id
forced_decoder_ids forced_eos_token_id generation_kwargs guidance_scale length_penalty low_memory max_length
max_matching_ngram_size max_new_tokens max_time min_length min_new_tokens no_repeat_ngram_size
num_assistant_tokens num_assistant_tokens_schedule num_beam_groups num_beams num_return_sequences
output_attentions output_hidden_states output_logits output_scores pad_token_id penalty_alpha
prompt_lookup_num_tokens remove_invalid_values renormalize_logits repetition_penalty return_dict_in_generate
sequence_bias suppress_tokens temperature top_k top_p transformers_version typical_p
"""
GENERATION = frozenset(_GENERATION_NAMES.split())
"""Names of GenerationConfig, which people put among the training options; `use_cache` is a training option too."""

GENERATION_REASON = "is a generation setting; training never generates, so it belongs to whoever serves the model"
