"""Pairs of replies for a reward model: each conversation whole, since its score is read at its last token. Torch-free.

A pair of which one side does not fit into `max_length` is dropped and counted: a cut reply would be scored as if it
ended there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainer_core.contract import CauseCode, RunConfig
from trainer_core.data.decode import json_type
from trainer_core.data.encode import Draft, Encoder
from trainer_core.data.encode_preferences import pair_drafts
from trainer_core.data.examples import PreferenceExample
from trainer_core.data.problems import RowFault
from trainer_core.data.sides import Sides
from trainer_core.model.tokenizer import LoadedTokenizer
from trainer_core.run.faults import Fault


@dataclass(frozen=True, slots=True)
class Ranked(Sides):
    """`margin` is by how much the chosen reply's score should at least be the greater one."""

    margin: float = 0.0

    @property
    def n_learnt(self) -> int:
        """A whole pair is one thing to learn."""
        return 0 if self.is_truncated else 1

    def marked(self) -> Iterator[tuple[int, bool]]:
        """The token where a side's score is read counts as learnt."""
        for side in (self.chosen, self.rejected):
            last = len(side.ids) - 1
            yield from ((id_, place == last) for place, id_ in enumerate(side.ids))


class RewardEncoder:
    """Raises Fault(config_invalid) for what this method cannot train."""

    def __init__(self, loaded: LoadedTokenizer, config: RunConfig) -> None:
        _refuse(config)
        # Rows of two texts are rendered by the same rule as for fine-tuning; messages always by the template.
        self._encoder = Encoder(loaded, config.data.model_copy(update={"format": "prompt_completion"}))
        self._has_template = bool(loaded.tokenizer.chat_template)
        self._margin_column = config.data.columns.margin or "margin"
        self._n_with_margin, self._n_without = 0, 0

    def draft(self, example: PreferenceExample) -> tuple[Draft, Draft, float]:
        """Raises RowFault for a margin that is no number, TemplateRefusal where the template does not take the row."""
        margin = self._margin(example.margin)
        return *pair_drafts(self._encoder, example, self._has_template), margin

    def encode(self, drafts: Sequence[tuple[Draft, Draft, float]]) -> Iterator[list[Ranked]]:
        sides = self._encoder.encode([draft for chosen, rejected, _ in drafts for draft in (chosen, rejected)])
        margins = [margin for _, _, margin in drafts]
        for (chosen,), (rejected,), margin in zip(sides, sides, margins, strict=True):
            yield [Ranked(chosen, rejected, margin)]

    def settle(self, train: list[Ranked], held_out: list[Ranked] | None) -> tuple[list[Ranked], list[Ranked] | None]:
        """Nothing depends on the rows as a whole."""
        return train, held_out

    def notes(self) -> list[str]:
        notes = self._encoder.notes()
        if self._n_with_margin:
            without = f"; {self._n_without} have none, which counts as 0" if self._n_without else ""
            notes = [*notes, f"{self._n_with_margin} rows have a margin{without}."]
        return notes

    def _margin(self, value: object) -> float:
        if value is None:
            self._n_without += 1
            return 0.0
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            message = f"a margin is a finite number, found {json_type(value)}"
            raise RowFault("bad_margin", message, self._margin_column)
        self._n_with_margin += 1
        return float(value)


def _refuse(config: RunConfig) -> None:
    if config.data.format != "preference":
        raise Fault(
            CauseCode.CONFIG_INVALID,
            f"The method reward learns from pairs, and the rows are of the format {config.data.format}.",
            hint="Send rows with prompt, chosen and rejected.",
            param="dataset",
        )
    if config.training.get("label_smoothing_factor"):
        raise Fault(
            CauseCode.CONFIG_INVALID,
            "The method reward has no use for training.label_smoothing_factor.",
            hint="Leave it out.",
            param="training.label_smoothing_factor",
        )
