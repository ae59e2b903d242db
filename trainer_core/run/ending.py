"""The rest of every method's run: train as planned, then check and write what is left behind.

The plan is checked before a checkpoint is unpickled or a step is made; what really runs is compared with what was
asked.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from trainer_core.checkpoints.resume import check_total
from trainer_core.contract import CauseCode, Done, ExitCode, Phase, Planned, Stopped
from trainer_core.data.encoded_report import DataReport
from trainer_core.data.prepare import Prepared
from trainer_core.model.base import count_parameters
from trainer_core.model.setup_checks import check_setup, read_setup
from trainer_core.outputs.card import model_card
from trainer_core.outputs.write import plot_losses, resolved_config, write_card, write_results
from trainer_core.run.beginning import Run, versions
from trainer_core.run.events import figures
from trainer_core.run.faults import Fault
from trainer_core.run.stop import leave_by_itself
from trainer_core.trainers.trainer import RunTrainerMixin


def train(run: Run, trainer: RunTrainerMixin, data: Prepared[Any]) -> ExitCode:
    """Train from the first step to finished files. Raises Fault, or what a library raises; the program records it."""
    trainer.before_loading = lambda total_steps: _check_plan(run, total_steps)
    trainer.on_ready = lambda total_steps: _ready(run, trainer, total_steps, data.report)
    result = trainer.train(resume_from_checkpoint=str(run.resume_folder) if run.resume_folder else None)
    if run.stop.request:
        return _stopped(run, trainer)
    _check_finished(trainer)
    if run.ranks.is_main:
        run.events.phase(Phase.EXPORTING)
        _write_outputs(run, trainer, data.report, result.metrics)
        _announce_done(run, trainer)
    run.ranks.wait_for_all()
    return ExitCode.DONE


# ---------------------------------------------------------------------------------------------------------------------
# Before the first step
# ---------------------------------------------------------------------------------------------------------------------


def _check_plan(run: Run, total_steps: int) -> None:
    config = run.config
    if total_steps < 1:
        raise Fault(CauseCode.CONFIG_INVALID, "The plan has no step to train.", param="training")
    if config.planned_steps is not None and config.planned_steps != total_steps:
        raise Fault(
            CauseCode.CONFIG_INVALID,
            f"The plan promised {config.planned_steps} steps and the trainer counts {total_steps}.",
            hint="The data or the libraries changed since the job was checked; submit it again.",
            param="training",
        )
    if run.resumed:
        check_total(config, run.resumed, total_steps, str(run.args.lr_scheduler_type.value))


def _ready(run: Run, trainer: RunTrainerMixin, total_steps: int, report: DataReport) -> None:
    """Everything is wrapped and loaded: compare it with what was asked, tell the plan, see that a save has room."""
    setup = read_setup(trainer)
    check_setup(trainer, run.config, setup)
    trainer.check_ready()
    counts = count_parameters(trainer.model)
    run.events.emit(
        Planned,
        total_steps=total_steps,
        n_train_rows=report.n_train_rows,
        n_eval_rows=report.n_eval_rows,
        n_epochs=float(trainer.state.num_train_epochs),
        global_batch_size=run.global_batch_size,
        trainable_parameters=counts["trainable"],
        total_parameters=counts["total"],
        trainable_share=counts["trainable"] / max(counts["total"], 1),
        trained_tokens_per_epoch=report.trained_tokens,
        parameters_by_dtype=counts["by_dtype"],
        **asdict(setup),
        report={
            "n_truncated": report.n_truncated,
            "n_dropped": report.n_dropped,
            "dropped_lines": report.dropped_lines,
            "notes": [*report.notes, *trainer.notes],
        },
    )
    # Weights in float32 and two moments of AdamW for each trained parameter, as an estimate before the first save.
    trainer.require_room(12 * counts["trainable"])
    run.events.phase(Phase.TRAINING)


# ---------------------------------------------------------------------------------------------------------------------
# After the last step
# ---------------------------------------------------------------------------------------------------------------------


def _stopped(run: Run, trainer: RunTrainerMixin) -> ExitCode:
    """The launcher ends all ranks as soon as one has left, so rank 0 tells first and the others wait for it."""
    request = run.stop.request
    assert request is not None
    saved = trainer.store.last_step if request.save_checkpoint else None
    run.events.emit(Stopped, step=trainer.state.global_step, reason=request.reason, checkpoint_step=saved)
    leave_by_itself()
    run.ranks.wait_for_all()
    return ExitCode.STOPPED


def _check_finished(trainer: RunTrainerMixin) -> None:
    """Raises Fault(internal) unless the planned steps were done and the last of them is a verified checkpoint."""
    step, total = trainer.state.global_step, trainer.state.max_steps
    if step != total or step < 1:
        raise Fault(CauseCode.INTERNAL, f"The training ended at step {step}; the plan has {total}.")
    if trainer.ranks.is_main and trainer.store.last_step != total:
        raise Fault(CauseCode.INTERNAL, f"The last checkpoint is {trainer.store.last_step}; the plan ends at {total}.")


def _write_outputs(run: Run, trainer: RunTrainerMixin, report: DataReport, metrics: dict[str, Any]) -> None:
    history = trainer.state.log_history
    train = {name: value for name, value in metrics.items() if name != "total_flos"}
    final_eval: dict[str, Any] = next((entry for entry in reversed(history) if "eval_loss" in entry), {})
    write_results(run.folder, asdict(trainer.state), train, final_eval)
    trainer.judge.write_files(run.folder.output)
    plot_losses(run.folder, run.events)
    card = model_card(
        run.config,
        resolved_config(run.config),
        figures({**train, **final_eval}),
        versions(),
        n_train_rows=report.n_train_rows,
        total_steps=trainer.state.max_steps,
        best_step=trainer.store.best_step,
        parameters=count_parameters(trainer.model),
    )
    write_card(run.folder, card)


def _announce_done(run: Run, trainer: RunTrainerMixin) -> None:
    run.events.emit(
        Done,
        step=trainer.state.global_step,
        total_steps=trainer.state.max_steps,
        best_step=trainer.store.best_step,
        last_step=trainer.store.last_step,
        metrics=trainer.newest,
    )
