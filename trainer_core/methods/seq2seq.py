"""Training of an encoder-decoder model (T5, BART, Marian) on pairs of texts, from start to finished files."""

from __future__ import annotations

from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainingArguments

from trainer_core.contract import ExitCode, Phase, RunConfig, RunFolder
from trainer_core.contract.method_options import Seq2SeqOptions
from trainer_core.data.collate_labels import PairCollator
from trainer_core.data.prepare import prepare
from trainer_core.judges.texts import TextJudge
from trainer_core.model.adapters import with_adapter
from trainer_core.model.base import check_vocabulary, load_model
from trainer_core.model.tokenizer import load_tokenizer
from trainer_core.run.beginning import begin
from trainer_core.run.ending import train
from trainer_core.run.events import EventWriter
from trainer_core.run.launch_env import LaunchEnv
from trainer_core.trainers.generating import Seq2SeqRunTrainer, generation_config, length_note
from trainer_core.trainers.summed_loss import TokenLoss


def run(config: RunConfig, folder: RunFolder, events: EventWriter, launch: LaunchEnv) -> ExitCode:
    """One rank's whole run. Raises Fault, or what a library raises; the program records it."""
    run = begin(config, folder, events, launch, Seq2SeqTrainingArguments)
    options = config.seq2seq or Seq2SeqOptions()

    events.phase(Phase.TOKENIZING)
    loaded = load_tokenizer(config.model, config.method)
    data = prepare(config, loaded)
    run.stop.leave_if_asked()

    events.phase(Phase.LOADING)
    base = load_model(run, AutoModelForSeq2SeqLM)
    run.args.generation_config = generation_config(base, run.args.generation_config)
    model = with_adapter(base, run, task_type="SEQ_2_SEQ_LM")
    check_vocabulary(model, len(loaded.tokenizer))
    run.stop.leave_if_asked()

    loss = TokenLoss()
    judge = TextJudge(loss, loaded.tokenizer, options.bleu_tokenize)
    trainer = Seq2SeqRunTrainer(
        run=run,
        loss=loss,
        judge=judge,
        model=model,
        train_dataset=data.train,
        eval_dataset=data.eval,
        data_collator=PairCollator(
            loaded.pad_id, base.prepare_decoder_input_ids_from_labels, 8 if config.device == "cuda" else 1
        ),
        processing_class=loaded.tokenizer,
    )
    if run.args.predict_with_generate and data.eval:
        judge.generate = trainer.generate
        trainer.notes += length_note(trainer, data.eval)
    return train(run, trainer, data)
