"""Training of a classifier (one class a text, or several) or a regression, from start to finished files."""

from __future__ import annotations

from transformers import AutoModelForSequenceClassification

from trainer_core.contract import ExitCode, Phase, RunConfig, RunFolder
from trainer_core.data.collate_labels import LabelCollator
from trainer_core.data.encode_labels import LabelEncoder
from trainer_core.data.prepare import prepare_rows
from trainer_core.judges.labels import LabelJudge
from trainer_core.model.adapters import with_adapter
from trainer_core.model.base import check_vocabulary, load_with_head
from trainer_core.model.tokenizer import load_tokenizer
from trainer_core.run.beginning import begin
from trainer_core.run.ending import train
from trainer_core.run.events import EventWriter
from trainer_core.run.launch_env import LaunchEnv
from trainer_core.trainers.summed_loss import ClassLoss, SummedLossTrainer

PROBLEM_TYPES = {"single_label": "single_label_classification", "multi_label": "multi_label_classification"}


def run(config: RunConfig, folder: RunFolder, events: EventWriter, launch: LaunchEnv) -> ExitCode:
    """One rank's whole run. Raises Fault, or what a library raises; the program records it."""
    run = begin(config, folder, events, launch)

    events.phase(Phase.TOKENIZING)
    loaded = load_tokenizer(config.model, config.method)
    encoder = LabelEncoder(loaded, config)
    data = prepare_rows(config, loaded, encoder)
    run.stop.leave_if_asked()

    events.phase(Phase.LOADING)
    problem_type = PROBLEM_TYPES.get(encoder.problem, "regression")
    headed = load_with_head(
        run, AutoModelForSequenceClassification, encoder.names, loaded.pad_id, problem_type=problem_type
    )
    model = with_adapter(headed.model, run, task_type="SEQ_CLS", heads=headed.heads)
    check_vocabulary(model, len(loaded.tokenizer))
    run.stop.leave_if_asked()

    loss = ClassLoss(encoder.problem, encoder.class_weights)
    trainer = SummedLossTrainer(
        run=run,
        loss=loss,
        judge=LabelJudge(loss, encoder.problem, encoder.names),
        notes=headed.notes,
        model=model,
        train_dataset=data.train,
        eval_dataset=data.eval,
        data_collator=LabelCollator(loaded.pad_id, 8 if config.device == "cuda" else 1),
        processing_class=loaded.tokenizer,
    )
    return train(run, trainer, data)
