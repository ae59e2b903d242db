"""Supervised fine-tuning of a causal language model, from start to finished files, in the order it happens."""

from __future__ import annotations

import os
import platform
import socket
from dataclasses import asdict
from typing import Any

from peft import PeftModel
from transformers import PreTrainedModel, TrainingArguments

from trainer_core.adapters import add_adapter, load_adapter_weights
from trainer_core.card import model_card
from trainer_core.checkpoints import CheckpointStore
from trainer_core.contract import (
    CauseCode,
    Done,
    ExitCode,
    Manifest,
    Phase,
    Planned,
    RunConfig,
    RunFolder,
    Started,
    Stopped,
)
from trainer_core.data.collate import PadCollator
from trainer_core.data.prepare import Prepared, prepare
from trainer_core.events import EventWriter, figures
from trainer_core.faults import Fault
from trainer_core.launch_env import LaunchEnv
from trainer_core.manifests import curve_digest
from trainer_core.model import check_vocabulary, count_parameters, load_model
from trainer_core.outputs import plot_losses, resolved_config, write_card, write_results
from trainer_core.ranks import Ranks
from trainer_core.resume import check_total, open_checkpoint
from trainer_core.run_arguments import start
from trainer_core.setup_checks import check_setup, read_setup
from trainer_core.stop import StopSign
from trainer_core.tokenizer import load_tokenizer
from trainer_core.trainer import RunTrainer, global_batch_size, versions
from trainer_core.zero_owners import stage_of, strategy_of


def run(config: RunConfig, folder: RunFolder, events: EventWriter, launch: LaunchEnv) -> ExitCode:
    """One rank's whole run. Raises Fault, or what a library raises; the program records it."""
    args = start(config, folder, launch)
    ranks = Ranks(timeout_s=args.ddp_timeout)
    stop = StopSign(folder, ranks)
    batch = global_batch_size(args, ranks.world_size)

    checkpoint = _checkpoint_to_start_from(config, batch, ranks)
    _announce(config, events, ranks, checkpoint)
    stop.leave_if_asked()

    events.phase(Phase.TOKENIZING)
    loaded = load_tokenizer(config.model)
    data = prepare(config, loaded)
    stop.leave_if_asked()

    events.phase(Phase.LOADING)
    model = _load(config, args, checkpoint)
    check_vocabulary(model, len(loaded.tokenizer))
    stop.leave_if_asked()

    resumed = checkpoint if config.resume and config.resume.mode == "full" else None
    trainer = RunTrainer(
        config=config,
        args=args,
        ranks=ranks,
        stop=stop,
        store=CheckpointStore(config, folder, events),
        events=events,
        before_loading=lambda total_steps: _check_plan(config, total_steps, resumed, args),
        on_ready=lambda trainer, total_steps: _ready(trainer, total_steps, config, data, model),
        config_digest=curve_digest(config, batch),
        model=model,
        train_dataset=data.train,
        eval_dataset=data.eval,
        data_collator=PadCollator(loaded.pad_id, pad_to_multiple_of=8 if config.device == "cuda" else None),
        processing_class=loaded.tokenizer,
    )
    result = trainer.train(resume_from_checkpoint=str(config.resume.checkpoint) if resumed and config.resume else None)

    if stop.request:
        return _stopped(trainer, stop, events)
    _check_finished(trainer)
    if ranks.is_main:
        events.phase(Phase.EXPORTING)
        _write_outputs(trainer, config, folder, data, result.metrics)
        _announce_done(trainer, events)
    ranks.wait_for_all()
    return ExitCode.DONE


# ---------------------------------------------------------------------------------------------------------------------
# Before the first step
# ---------------------------------------------------------------------------------------------------------------------


def _checkpoint_to_start_from(config: RunConfig, batch: int, ranks: Ranks) -> Manifest | None:
    """Rank 0 proves it for all: reading every byte once a rank would only load the disk."""
    strategy = strategy_of(config.parallel)
    stage = stage_of(config.parallel) if strategy == "deepspeed" else None
    manifest = open_checkpoint(config, strategy, stage, batch) if ranks.is_main else None
    texts = ranks.texts(manifest.model_dump_json() if manifest else "")
    return Manifest.model_validate_json(texts[0]) if texts[0] else None


def _announce(config: RunConfig, events: EventWriter, ranks: Ranks, checkpoint: Manifest | None) -> None:
    processes = [text.split(" ") for text in ranks.texts(f"{socket.gethostname()} {os.getpid()}")]
    is_full_resume = checkpoint is not None and config.resume is not None and config.resume.mode == "full"
    events.emit(
        Started,
        world_size=ranks.world_size,
        device=config.device,
        hosts=list(dict.fromkeys(host for host, _ in processes)),
        pids=[int(pid) for _, pid in processes],
        versions={"python": platform.python_version(), **versions()},
        resumed_from_step=checkpoint.step if is_full_resume and checkpoint else None,
    )


def _load(config: RunConfig, args: TrainingArguments, checkpoint: Manifest | None) -> PreTrainedModel | PeftModel:
    """The model to train: base weights or a checkpoint's, with the adapter on it."""
    weights_from = (
        config.resume.checkpoint if checkpoint and config.resume and config.resume.mode == "weights" else None
    )
    model = load_model(config, weights_from if config.adapter is None else None)
    if config.adapter is None:
        return model
    adapted = add_adapter(model, config.adapter, recompute=bool(args.activation_checkpointing), seed=config.seed)
    if weights_from:
        load_adapter_weights(adapted, weights_from)
    return adapted


def _check_plan(config: RunConfig, total_steps: int, resumed: Manifest | None, args: TrainingArguments) -> None:
    """Before a checkpoint is unpickled or a step is made: the plan is the one that was promised."""
    if total_steps < 1:
        raise Fault(CauseCode.CONFIG_INVALID, "The plan has no step to train.", param="training")
    if config.planned_steps is not None and config.planned_steps != total_steps:
        raise Fault(
            CauseCode.CONFIG_INVALID,
            f"The plan promised {config.planned_steps} steps and the trainer counts {total_steps}.",
            hint="The data or the libraries changed since the job was checked; submit it again.",
            param="training",
        )
    if resumed:
        check_total(config, resumed, total_steps, str(args.lr_scheduler_type.value))


def _ready(trainer: RunTrainer, total_steps: int, config: RunConfig, data: Prepared, model: Any) -> None:
    """Everything is wrapped and loaded: compare it with what was asked, tell the plan, see that a save has room."""
    setup = read_setup(trainer)
    check_setup(trainer, config, setup)
    counts = count_parameters(model)
    trainer.events.emit(
        Planned,
        total_steps=total_steps,
        n_train_rows=len(data.train),
        n_eval_rows=len(data.eval or []),
        n_epochs=float(trainer.state.num_train_epochs),
        global_batch_size=global_batch_size(trainer.args, trainer.ranks.world_size),
        trainable_parameters=counts["trainable"],
        total_parameters=counts["total"],
        trained_tokens_per_epoch=data.report.trained_tokens,
        parameters_by_dtype=counts["by_dtype"],
        **asdict(setup),
        report={
            "n_truncated": data.report.n_truncated,
            "n_dropped": data.report.n_dropped,
            "dropped_lines": data.report.dropped_lines,
            "notes": data.report.notes,
        },
    )
    # Weights in float32 and two moments of AdamW for each trained parameter, as an estimate before the first save.
    trainer.require_room(12 * counts["trainable"])
    trainer.events.phase(Phase.TRAINING)


# ---------------------------------------------------------------------------------------------------------------------
# After the last step
# ---------------------------------------------------------------------------------------------------------------------


def _stopped(trainer: RunTrainer, stop: StopSign, events: EventWriter) -> ExitCode:
    """The launcher ends all ranks as soon as one has left, so rank 0 tells first and the others wait for it."""
    assert stop.request is not None
    step = trainer.state.global_step
    saved = trainer.store.last_step if stop.request.save_checkpoint else None
    events.emit(Stopped, step=step, reason=stop.request.reason, checkpoint_step=saved)
    trainer.ranks.wait_for_all()
    return ExitCode.STOPPED


def _check_finished(trainer: RunTrainer) -> None:
    """Raises Fault(internal) unless the planned steps were done and the last of them is a verified checkpoint."""
    step, total = trainer.state.global_step, trainer.state.max_steps
    if step != total or step < 1:
        raise Fault(CauseCode.INTERNAL, f"The training ended at step {step}; the plan has {total}.")
    if trainer.ranks.is_main and trainer.store.last_step != total:
        raise Fault(CauseCode.INTERNAL, f"The last checkpoint is {trainer.store.last_step}; the plan ends at {total}.")


def _write_outputs(
    trainer: RunTrainer, config: RunConfig, folder: RunFolder, data: Prepared, metrics: dict[str, Any]
) -> None:
    history = trainer.state.log_history
    train = {name: value for name, value in metrics.items() if name != "total_flos"}
    final_eval: dict[str, Any] = next((entry for entry in reversed(history) if "eval_loss" in entry), {})
    write_results(folder, asdict(trainer.state), train, final_eval)
    plot_losses(folder, trainer.events)
    card = model_card(
        config,
        resolved_config(config),
        figures({**train, **final_eval}),
        versions(),
        n_train_rows=len(data.train),
        total_steps=trainer.state.max_steps,
        best_step=trainer.store.best_step,
    )
    write_card(folder, card)


def _announce_done(trainer: RunTrainer, events: EventWriter) -> None:
    events.emit(
        Done,
        step=trainer.state.global_step,
        total_steps=trainer.state.max_steps,
        best_step=trainer.store.best_step,
        last_step=trainer.store.last_step,
        metrics=trainer.newest,
    )
