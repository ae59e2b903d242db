"""Training of a reward model, which scores replies, on pairs of them, from start to finished files."""

from __future__ import annotations

from transformers import AutoModelForSequenceClassification

from trainer_core.contract import ExitCode, Phase, RunConfig, RunFolder
from trainer_core.contract.method_options import RewardOptions
from trainer_core.data.collate import PadCollator
from trainer_core.data.prepare import prepare
from trainer_core.model.adapters import with_adapter
from trainer_core.model.base import check_vocabulary, load_with_head
from trainer_core.model.tokenizer import load_tokenizer
from trainer_core.run.beginning import begin
from trainer_core.run.ending import train
from trainer_core.run.events import EventWriter
from trainer_core.run.launch_env import LaunchEnv
from trainer_core.trainers.comparing import ComparingTrainer
from trainer_core.trainers.rewarding import Ranking, RewardCollator

SCORE = "reward"
"""The name of the one output, in the model's config."""


def run(config: RunConfig, folder: RunFolder, events: EventWriter, launch: LaunchEnv) -> ExitCode:
    """One rank's whole run. Raises Fault, or what a library raises; the program records it."""
    run = begin(config, folder, events, launch)
    options = config.reward or RewardOptions()

    events.phase(Phase.TOKENIZING)
    loaded = load_tokenizer(config.model, config.method)
    data = prepare(config, loaded)
    run.stop.leave_if_asked()

    events.phase(Phase.LOADING)
    headed = load_with_head(run, AutoModelForSequenceClassification, [SCORE], loaded.pad_id, problem_type="regression")
    model = with_adapter(headed.model, run, task_type="SEQ_CLS", heads=headed.heads)
    check_vocabulary(model, len(loaded.tokenizer))
    run.stop.leave_if_asked()

    trainer = ComparingTrainer(
        run=run,
        comparison=Ranking(options),
        notes=headed.notes,
        model=model,
        train_dataset=data.train,
        eval_dataset=data.eval,
        data_collator=RewardCollator(PadCollator(loaded.pad_id, 8 if config.device == "cuda" else None)),
        processing_class=loaded.tokenizer,
    )
    return train(run, trainer, data)
