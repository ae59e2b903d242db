"""Training of a causal model on pairs of replies, one of them preferred, from start to finished files."""

from __future__ import annotations

from trainer_core.contract import ExitCode, Phase, RunConfig, RunFolder
from trainer_core.contract.method_options import PreferenceOptions
from trainer_core.data.collate import PadCollator
from trainer_core.data.prepare import prepare
from trainer_core.model.adapters import with_adapter
from trainer_core.model.base import check_vocabulary, load_model
from trainer_core.model.tokenizer import load_tokenizer
from trainer_core.run.beginning import begin
from trainer_core.run.ending import train
from trainer_core.run.events import EventWriter
from trainer_core.run.launch_env import LaunchEnv
from trainer_core.trainers.comparing import ComparingTrainer
from trainer_core.trainers.preferring import Preference, PreferenceCollator, with_reference


def run(config: RunConfig, folder: RunFolder, events: EventWriter, launch: LaunchEnv) -> ExitCode:
    """One rank's whole run. Raises Fault, or what a library raises; the program records it."""
    run = begin(config, folder, events, launch)
    options = config.preference or PreferenceOptions()

    events.phase(Phase.TOKENIZING)
    loaded = load_tokenizer(config.model)
    data = prepare(config, loaded)
    run.stop.leave_if_asked()

    events.phase(Phase.LOADING)
    base = load_model(run)
    check_vocabulary(base, len(loaded.tokenizer))
    collate = PreferenceCollator(PadCollator(loaded.pad_id, 8 if config.device == "cuda" else None))
    rows, held_out = data.train, data.eval
    if options.has_reference:
        rows = with_reference(run, base, collate, rows)
        held_out = with_reference(run, base, collate, held_out) if held_out else held_out
    model = with_adapter(base, run)
    run.stop.leave_if_asked()

    trainer = ComparingTrainer(
        run=run,
        comparison=Preference(options),
        model=model,
        train_dataset=rows,
        eval_dataset=held_out,
        data_collator=collate,
        processing_class=loaded.tokenizer,
    )
    return train(run, trainer, data)
