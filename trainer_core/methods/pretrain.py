"""Training of a causal model on plain text in blocks, from start to finished files, in the order it happens."""

from __future__ import annotations

from pydantic import TypeAdapter

from trainer_core.contract import CauseCode, ExitCode, Phase, RunConfig, RunFolder
from trainer_core.contract.method_options import PretrainOptions
from trainer_core.data.collate import PadCollator
from trainer_core.data.encoded_report import DataReport
from trainer_core.data.prepare_text import open_blocks, read_texts
from trainer_core.model.adapters import with_adapter
from trainer_core.model.base import check_vocabulary, load_model
from trainer_core.model.tokenizer import LoadedTokenizer, load_tokenizer
from trainer_core.run.beginning import Run, begin
from trainer_core.run.ending import train
from trainer_core.run.events import EventWriter
from trainer_core.run.faults import Fault
from trainer_core.run.launch_env import LaunchEnv
from trainer_core.trainers.evaluation import LanguageJudge
from trainer_core.trainers.packed import PackedTrainer

REPORT = TypeAdapter(DataReport)


def run(config: RunConfig, folder: RunFolder, events: EventWriter, launch: LaunchEnv) -> ExitCode:
    """One rank's whole run. Raises Fault, or what a library raises; the program records it."""
    run = begin(config, folder, events, launch)
    options = config.pretrain or PretrainOptions()

    events.phase(Phase.TOKENIZING)
    loaded = load_tokenizer(config.model)
    data = open_blocks(config, _read_once(run, loaded), folder.scratch)
    run.stop.leave_if_asked()

    events.phase(Phase.LOADING)
    model = with_adapter(load_model(run), run)
    check_vocabulary(model, len(loaded.tokenizer))
    run.stop.leave_if_asked()

    trainer = PackedTrainer(
        run=run,
        is_packed=options.document_boundaries == "mask",
        option="pretrain.document_boundaries",
        judge=LanguageJudge(),
        model=model,
        train_dataset=data.train,
        eval_dataset=data.eval,
        data_collator=PadCollator(loaded.pad_id, pad_to_multiple_of=8 if config.device == "cuda" else None),
        processing_class=loaded.tokenizer,
    )
    return train(run, trainer, data)


def _read_once(run: Run, loaded: LoadedTokenizer) -> DataReport:
    """The first rank of each machine writes the tokens that all ranks there map; what is wrong is raised on every rank.

    The others wait as long as training.ddp_timeout says.
    """
    text, fault = "", None
    if run.args.local_process_index == 0:
        try:
            text = REPORT.dump_json(read_texts(run.config, loaded, run.folder.scratch)).decode()
        except Fault as error:
            fault = error
    if run.ranks.any_of(fault is not None)[0]:
        raise fault or Fault(CauseCode.DATA_INVALID, "The rank that reads the texts could not use them.")
    return REPORT.validate_json(next(text for text in run.ranks.texts(text) if text))
