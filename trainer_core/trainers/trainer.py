"""The Hugging Face Trainer with our own checkpoints, evaluation and counting; the training loop itself is untouched.

Every override names the reason the Trainer's own behaviour does not do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerControl
from transformers.trainer_pt_utils import LengthGroupedSampler

from trainer_core.checkpoints.keep import CheckpointStore, best_value
from trainer_core.checkpoints.manifests import curve_digest
from trainer_core.checkpoints.weights import expected_names
from trainer_core.contract import CauseCode, LoraAdapter, Manifest, Phase, peft_part
from trainer_core.methods_table import METHODS
from trainer_core.model.loraplus import loraplus
from trainer_core.model.prompts import restore_prompt_encoder, save_prompt_encoder
from trainer_core.run.beginning import Run, versions
from trainer_core.run.callbacks import Pace, Telemetry, Watch
from trainer_core.run.events import figures, finite_or_word
from trainer_core.run.faults import Fault
from trainer_core.run.flat import Flat, Unsaid
from trainer_core.run.meters import Meters
from trainer_core.run.progress_log import TRAINER_LOG, ProgressLog
from trainer_core.trainers.evaluation import Judge, evaluate
from trainer_core.trainers.rehearsal import rehearse


class RunTrainerMixin(Trainer):
    """To be put before Seq2SeqTrainer or one of TRL's trainers: `class X(RunTrainerMixin, DPOTrainer)`. What it calls
    of its superclass is then theirs, for they stand between it and Trainer.

    `ending.train` sets both hooks: `before_loading(total_steps)` is called as soon as the number of steps is known,
    before a checkpoint is unpickled; `on_ready(total_steps)` once everything is wrapped and loaded.
    """

    control: TrainerControl
    optimizer: Any
    rehearses = True
    """Whether a batch of the train rows is what a step is made of."""

    def __init__(self, *, run: Run, judge: Judge, notes: Sequence[str] = (), **trainer_arguments: Any) -> None:
        self.run = run
        self.run_config = run.config
        self._peft = peft_part(run.config.adapter)
        self.ranks = run.ranks
        self.stop = run.stop
        self.events = run.events
        self.store = CheckpointStore(run.config, run.folder, run.events)
        self.judge = judge
        self.notes = list(notes)
        """For the plan's report: what people should know of the model as it was set up."""
        self.before_loading: Callable[[int], None] | None = None
        self.on_ready: Callable[[int], None] | None = None
        device = run.args.device
        self.meters = Meters(run.ranks, device)
        self.newest: dict[str, float | str] = {}
        self.step_loss = torch.zeros((), device=device)
        self._micro_losses: list[torch.Tensor] = []
        super().__init__(args=run.args, **trainer_arguments)
        if run.ranks.is_main:
            self.store.adopt_existing()
        log = ProgressLog(run.folder.output / TRAINER_LOG) if run.ranks.is_main else None
        self.add_callback(Pace(has_eval=self.eval_dataset is not None))
        self.add_callback(Watch(self, run.ranks, run.stop, run.events))
        self.add_callback(Telemetry(run.events, self.meters, log))
        self.add_callback(Flat(run.events))
        self._unsaid = Unsaid(run.events)
        self._expected = expected_names(self.model, has_adapter=self._peft is not None)

    # -- setting up ---------------------------------------------------------------------------------------------------

    def _init_training_state(self, max_steps: int, *args: Any, **kwargs: Any) -> Any:
        outcome = super()._init_training_state(max_steps, *args, **kwargs)
        # A resumed state brings the cadences of the run that saved it; this run's own are wanted.
        self.state.compute_steps(self.args, max_steps)
        self.meters.tokens_seen = self.state.num_input_tokens_seen
        return outcome

    def _prepare_for_training(self, max_steps: int, *args: Any, **kwargs: Any) -> Any:
        if self.before_loading:
            self.before_loading(max_steps)
        prepared = super()._prepare_for_training(max_steps, *args, **kwargs)
        if self.rehearses and self.run_config.parallel.dry_run:
            rehearse(self)
        if self.on_ready:
            self.on_ready(max_steps)
        return prepared

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if self.args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        # The Trainer looks for lengths in dicts; our rows are not dicts.
        lengths = [len(row.ids) for row in self.train_dataset]
        return LengthGroupedSampler(self.args.train_batch_size * self.args.gradient_accumulation_steps, lengths=lengths)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        adapter = self.run_config.adapter
        if self.optimizer is None and isinstance(adapter, LoraAdapter) and adapter.loraplus_lr_ratio is not None:
            self.optimizer = loraplus(self.model, self.args, adapter.loraplus_lr_ratio)
        return super().create_optimizer(*args, **kwargs)

    def check_ready(self) -> None:
        """Called on all ranks once everything is wrapped and loaded, before the first step. Raises Fault."""

    # -- stepping -----------------------------------------------------------------------------------------------------

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        batches, n_items = super().get_batch_samples(*args, **kwargs)
        # Counted without the exchange between ranks that include_num_input_tokens_seen makes for every batch.
        self.meters.count(batches)
        self._micro_losses = []
        return batches, n_items

    def batches_of(self, batches: list[Any]) -> tuple[list[Any], Any]:
        """Batches with their number of items, as a step of them would have it, uncounted. Collective."""
        return super().get_batch_samples(iter(batches), len(batches), self.args.device)

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss = super().training_step(*args, **kwargs)
        self._micro_losses.append(loss)
        self.step_loss = torch.stack(self._micro_losses).sum()
        return loss

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        if "loss" in logs:
            logs |= self.meters.read()
        self.newest |= {name: value for name, value in figures(logs).items() if name.endswith("loss")}
        super().log(logs, start_time)
        # trainer_state.json must be strict JSON: the Trainer would write the bare words NaN and Infinity.
        self.state.log_history[-1] = {name: _strict(value) for name, value in self.state.log_history[-1].items()}

    # -- evaluating ---------------------------------------------------------------------------------------------------

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        self.events.phase(Phase.EVALUATING)
        metrics = evaluate(
            self.model_wrapped,
            self.eval_dataset if eval_dataset is None else eval_dataset,
            self.data_collator,
            self._prepare_inputs,
            self.args.per_device_eval_batch_size,
            self.ranks,
            self.stop,
            self.judge,
        )
        if self.stop.request:
            self.control.should_training_stop = True
            self.control.should_save = self.stop.request.save_checkpoint
        if metrics is None:
            self.control.should_evaluate = False
            return {}
        self._unsaid.look(metrics, self.state.global_step)
        self.newest |= figures(metrics)
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        self.events.phase(Phase.TRAINING)
        return metrics

    def _determine_best_metric(self, metrics: Mapping[str, float], trial: Any) -> bool:
        """With save_strategy "best" the Trainer saves when this says so; its own version dies of a missing metric."""
        value = best_value(figures(metrics), self.run_config.metric_for_best)
        best, greater = self.state.best_metric, self.run_config.greater_is_better
        is_better = value is not None and (best is None or (value > best if greater else value < best))
        if is_better:
            self.state.best_metric = value
        return is_better or self.state.global_step >= self.state.max_steps

    # -- saving -------------------------------------------------------------------------------------------------------

    def _get_output_dir(self, trial: Any) -> str:
        return str(self.store.saving_root(self.state.global_step))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        self.events.phase(Phase.SAVING)
        self.state.num_input_tokens_seen = self.meters.tokens_everywhere()
        try:
            self.require_room()
            super()._save_checkpoint(model, trial)
            if self.ranks.is_main and self._peft is not None:
                self._save_beside_adapter()
            self.ranks.wait_for_all()
            if self.ranks.is_main:
                self.store.complete(self._manifest(), self._expected)
            self.ranks.wait_for_all()
        except BaseException:
            if self.ranks.is_main:
                self.store.clear_half_saved()
            raise
        self.events.phase(Phase.TRAINING)

    def _save_beside_adapter(self) -> None:
        """Beside an adapter lies no model config, yet a head has as many outputs as there are labels, and their names
        stand there alone. Of learnt prompts PEFT saves what comes out of their network, not the network."""
        step = self.state.global_step
        folder = self.store.saving_root(step) / f"checkpoint-{step}"
        if METHODS[self.run_config.method].has_labels:
            self.model.config.save_pretrained(str(folder))
        save_prompt_encoder(self.model, folder)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if restore_prompt_encoder(self.model, Path(resume_from_checkpoint)):
            return
        super()._load_from_checkpoint(resume_from_checkpoint, model)

    def require_room(self, needed_bytes: int = 0) -> None:
        """Collective: raises the same Fault(disk_full) on every rank when rank 0 finds no room for a checkpoint."""
        shortage: Fault | None = None
        if self.ranks.is_main:
            try:
                self.store.require_room(needed_bytes)
            except Fault as fault:
                shortage = fault
        if self.ranks.any_of(shortage is not None)[0]:
            raise shortage or Fault(CauseCode.DISK_FULL, "Rank 0 found no room for a checkpoint.")

    def _manifest(self) -> Manifest:
        """All that is known of the checkpoint but its files."""
        config = self.run_config
        return Manifest(
            job_id=config.job_id,
            attempt=config.attempt,
            step=self.state.global_step,
            epoch=self.state.epoch,
            world_size=self.ranks.world_size,
            strategy="deepspeed" if self.is_deepspeed_enabled else "ddp",
            zero_stage=zero_stage_of(self),
            adapter=self._peft.type if self._peft else None,
            versions=versions(),
            data_sha256=config.data.train_sha256,
            config_sha256=curve_digest(config, self.run.global_batch_size),
            total_steps=self.state.max_steps,
            metrics=self.newest,
            files=[],
        )


class RunTrainer(RunTrainerMixin):
    """The plain Trainer, for methods whose loss the model itself computes."""


def zero_stage_of(trainer: RunTrainerMixin) -> int | None:
    """The ZeRO stage that the engine really runs, or None without DeepSpeed."""
    return int(trainer.model_wrapped.zero_optimization_stage()) if trainer.is_deepspeed_enabled else None


def _strict(value: Any) -> Any:
    number = finite_or_word(value)
    return value if number is None else number
