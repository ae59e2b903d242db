"""TrainingArguments for one run: the job's options as resolved, under what the run itself must decide.

Building them starts the process group: before this there are no ranks to speak to.
"""

from __future__ import annotations

import importlib
from typing import Any

from transformers import TrainingArguments

from trainer_core.contract import CauseCode, RunConfig, RunFolder
from trainer_core.run.faults import Fault
from trainer_core.run.launch_env import LaunchEnv, be_the_only_process
from trainer_core.zero.owners import strategy_of


def start(
    config: RunConfig, folder: RunFolder, launch: LaunchEnv, arguments_class: type[TrainingArguments]
) -> TrainingArguments:
    """Build the arguments and with them the process group, and DeepSpeed's side of it before any model is made.

    Raises Fault(config_invalid) when this process was started with another number of ranks than the job asks for.
    """
    if launch.world_size != config.parallel.n_processes:
        raise Fault(
            CauseCode.CONFIG_INVALID,
            f"{launch.world_size} processes were started and the job asks for {config.parallel.n_processes}.",
            hint=f"Start it with torchrun --nproc-per-node {config.parallel.n_processes} -m trainer_core run RUN_DIR.",
            param="parallel.n_processes",
        )
    if strategy_of(config.parallel) == "ddp":
        return _build(config, folder, launch, None, arguments_class)
    # Loaded by name: its import takes half a second that DDP runs need not pay.
    deepspeed_start = importlib.import_module("trainer_core.run.deepspeed_start")
    deepspeed_start.without_compiler(config)
    if not launch.is_launched:
        be_the_only_process()
    args = _build(config, folder, launch, deepspeed_start.block(config), arguments_class)
    deepspeed_start.join("gloo" if config.device == "cpu" else "nccl")
    return args


def _build(
    config: RunConfig,
    folder: RunFolder,
    launch: LaunchEnv,
    deepspeed: dict[str, Any] | None,
    arguments_class: type[TrainingArguments],
) -> TrainingArguments:
    values = {"seed": config.seed, "ddp_find_unused_parameters": False, **config.training}
    has_eval = config.data.eval is not None or config.data.eval_fraction is not None
    if not has_eval:
        values["eval_strategy"] = "no"
    values |= {
        "output_dir": str(folder.checkpoints),
        "deepspeed": deepspeed,
        "use_cpu": config.device == "cpu",
        # A backend without a rendezvous is an error, and a lone DDP process has none.
        "ddp_backend": "gloo" if config.device == "cpu" and (launch.is_launched or deepspeed) else None,
        "dataloader_pin_memory": config.device == "cuda" and config.training.get("dataloader_pin_memory", True),
        "average_tokens_across_devices": True,
        "label_names": ["labels"],
        # Telling of, keeping and choosing checkpoints is ours: the Trainer's own keeps the best or the last, not both.
        "report_to": "none",
        "disable_tqdm": True,
        "push_to_hub": False,
        "hub_token": None,
        "load_best_model_at_end": False,
        "save_total_limit": None,
        "save_only_model": False,
        "metric_for_best_model": "loss" if config.training.get("save_strategy") == "best" else None,
        "include_num_input_tokens_seen": "no",
        # The loss as it is: Watch ends the run at the first that is not finite.
        "logging_nan_inf_filter": False,
    }
    if _recomputes(values):
        values["activation_checkpointing_kwargs"] = values.get("activation_checkpointing_kwargs") or {
            "use_reentrant": False
        }
    try:
        return arguments_class(**values)
    except (TypeError, ValueError) as error:
        raise Fault(
            CauseCode.CONFIG_INVALID,
            f"The training options were refused: {str(error).strip().splitlines()[0]}",
            hint="See the list of TrainingArguments of the installed transformers version.",
            param="training",
        ) from error


def _recomputes(values: dict[str, Any]) -> bool:
    return bool(values.get("activation_checkpointing") or values.get("gradient_checkpointing"))
