"""Training of a tagger (named entities and the like), from start to finished files."""

from __future__ import annotations

from transformers import AutoModelForTokenClassification

from trainer_core.contract import ExitCode, Phase, RunConfig, RunFolder
from trainer_core.contract.method_options import TokenClassificationOptions
from trainer_core.data.collate_labels import TagCollator
from trainer_core.data.encode_tags import TagEncoder
from trainer_core.data.prepare import prepare_rows
from trainer_core.judges.tags import TagJudge
from trainer_core.model.adapters import with_adapter
from trainer_core.model.base import check_vocabulary, load_with_head
from trainer_core.model.tokenizer import load_tokenizer
from trainer_core.run.beginning import begin
from trainer_core.run.ending import train
from trainer_core.run.events import EventWriter
from trainer_core.run.launch_env import LaunchEnv
from trainer_core.trainers.summed_loss import SummedLossTrainer, TokenLoss


def run(config: RunConfig, folder: RunFolder, events: EventWriter, launch: LaunchEnv) -> ExitCode:
    """One rank's whole run. Raises Fault, or what a library raises; the program records it."""
    run = begin(config, folder, events, launch)
    options = config.token_classification or TokenClassificationOptions()

    events.phase(Phase.TOKENIZING)
    loaded = load_tokenizer(config.model, config.method)
    encoder = TagEncoder(loaded, config)
    data = prepare_rows(config, loaded, encoder)
    run.stop.leave_if_asked()

    events.phase(Phase.LOADING)
    headed = load_with_head(run, AutoModelForTokenClassification, encoder.names, loaded.pad_id)
    model = with_adapter(headed.model, run, task_type="TOKEN_CLS", heads=headed.heads)
    check_vocabulary(model, len(loaded.tokenizer))
    run.stop.leave_if_asked()

    loss = TokenLoss()
    trainer = SummedLossTrainer(
        run=run,
        loss=loss,
        judge=TagJudge(loss, encoder.names, has_entities=encoder.has_entities, scheme_name=options.scheme),
        notes=headed.notes,
        model=model,
        train_dataset=data.train,
        eval_dataset=data.eval,
        data_collator=TagCollator(loaded.pad_id, 8 if config.device == "cuda" else 1),
        processing_class=loaded.tokenizer,
    )
    return train(run, trainer, data)
