"""Supervised fine-tuning of a causal language model, from start to finished files, in the order it happens."""

from __future__ import annotations

from trainer_core.contract import ExitCode, Phase, RunConfig, RunFolder
from trainer_core.data.collate import PadCollator
from trainer_core.data.prepare import prepare
from trainer_core.model.adapters import with_adapter
from trainer_core.model.base import check_vocabulary, load_model
from trainer_core.model.tokenizer import load_tokenizer
from trainer_core.run.beginning import begin
from trainer_core.run.ending import train
from trainer_core.run.events import EventWriter
from trainer_core.run.launch_env import LaunchEnv
from trainer_core.trainers.evaluation import LanguageJudge
from trainer_core.trainers.packed import PackedTrainer


def run(config: RunConfig, folder: RunFolder, events: EventWriter, launch: LaunchEnv) -> ExitCode:
    """One rank's whole run. Raises Fault, or what a library raises; the program records it."""
    run = begin(config, folder, events, launch)

    events.phase(Phase.TOKENIZING)
    loaded = load_tokenizer(config.model)
    data = prepare(config, loaded)
    run.stop.leave_if_asked()

    events.phase(Phase.LOADING)
    model = with_adapter(load_model(run), run)
    check_vocabulary(model, len(loaded.tokenizer))
    run.stop.leave_if_asked()

    trainer = PackedTrainer(
        run=run,
        is_packed=bool(config.sft and config.sft.packing),
        option="sft.packing",
        judge=LanguageJudge(),
        model=model,
        train_dataset=data.train,
        eval_dataset=data.eval,
        data_collator=PadCollator(loaded.pad_id, pad_to_multiple_of=8 if config.device == "cuda" else None),
        processing_class=loaded.tokenizer,
    )
    return train(run, trainer, data)
