"""The Seq2SeqTrainer of a run: generates in evaluations, each setting taken from the first that has it.

Precedence as in Seq2SeqTrainer: generation_max_length and generation_num_beams, then generation_config in place of the
model's own, then the release's defaults. Token ids that a given generation_config does not name stay the model's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel, Seq2SeqTrainer
from transformers.integrations import is_deepspeed_zero3_enabled

from trainer_core.contract import CauseCode
from trainer_core.data.encode_pairs import Pair
from trainer_core.run.faults import Fault
from trainer_core.trainers.evaluation import Batch
from trainer_core.trainers.summed_loss import SummedLossTrainer

SPECIAL = ("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id", "forced_eos_token_id")


class Seq2SeqRunTrainer(SummedLossTrainer, Seq2SeqTrainer):
    def generate(self, batch: Batch) -> list[list[int]]:
        """Token ids for each row of the batch. Collective under ZeRO-3, where all ranks go on to the longest text."""
        given = {"max_length": self.args.generation_max_length, "num_beams": self.args.generation_num_beams}
        with torch.no_grad():
            out = self.model.generate(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                synced_gpus=is_deepspeed_zero3_enabled(),
                **{name: value for name, value in given.items() if value is not None},
            )
        ids: list[list[int]] = out.tolist()
        return ids


def generation_config(model: PreTrainedModel, given: Mapping[str, Any] | None) -> GenerationConfig | None:
    """The settings given, with the model's own special tokens. Raises Fault(config_invalid) for what cannot be."""
    if given is None:
        return None
    own = {name: getattr(model.generation_config, name, None) for name in SPECIAL}
    settings = {name: value for name, value in own.items() if value is not None} | dict(given)
    try:
        config = GenerationConfig(**settings)
        config.validate(strict=True)
    except (ValueError, TypeError) as error:
        raise Fault(
            CauseCode.CONFIG_INVALID,
            f"The generation settings were refused: {' '.join(str(error).split())[:400]}",
            hint="See GenerationConfig of the installed transformers version.",
            param="training.generation_config",
        ) from error
    return config


def length_note(trainer: Seq2SeqRunTrainer, rows: Sequence[Pair]) -> list[str]:
    """Said where generated texts end before the references do: the figures would tell of the limit."""
    settings = trainer.model.generation_config
    limit = trainer.args.generation_max_length or settings.max_length or 20
    if settings.max_new_tokens is not None:
        limit = settings.max_new_tokens + 1
    longest = max(len(row.labels) for row in rows)
    if longest < limit:
        return []
    return [
        f"Generated texts end at {limit} tokens with the start token, and the longest reference has {longest}: set "
        "training.generation_max_length."
    ]
