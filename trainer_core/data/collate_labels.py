"""Puts labelled rows of unequal length into one batch: padded on the right, known by position alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainer_core.data.encode import IGNORED
from trainer_core.data.encode_labels import Labelled
from trainer_core.data.encode_pairs import Pair
from trainer_core.data.encode_tags import Tagged

Tensors = dict[str, torch.Tensor]


def pad(sequences: Sequence[Sequence[int]], filler: int, multiple: int = 1) -> torch.Tensor:
    """(B, T) int64, T the longest length rounded up to the multiple."""
    longest = max(map(len, sequences))
    out_BT = torch.full((len(sequences), -(-longest // multiple) * multiple), filler, dtype=torch.int64)
    for row, sequence in enumerate(sequences):
        out_BT[row, : len(sequence)] = torch.tensor(sequence, dtype=torch.int64)
    return out_BT


@dataclass(frozen=True)
class LabelCollator:
    """input_ids, attention_mask (B, T), token_type_ids where the tokenizer gives them; labels: (B,) class numbers,
    (B, C) float32 of 0 and 1, or (B,) float32."""

    pad_id: int
    multiple: int = 1

    def __call__(self, rows: Sequence[Labelled]) -> Tensors:
        batch = _inputs([row.ids for row in rows], self.pad_id, self.multiple)
        if rows[0].type_ids is not None:
            batch["token_type_ids"] = pad([row.type_ids or () for row in rows], 0, self.multiple)
        is_class = isinstance(rows[0].label, int)
        batch["labels"] = torch.tensor([row.label for row in rows], dtype=torch.int64 if is_class else torch.float32)
        return batch


@dataclass(frozen=True)
class TagCollator:
    """input_ids, attention_mask and labels, each (B, T) int64."""

    pad_id: int
    multiple: int = 1

    def __call__(self, rows: Sequence[Tagged]) -> Tensors:
        batch = _inputs([row.ids for row in rows], self.pad_id, self.multiple)
        return batch | {"labels": pad([row.labels for row in rows], IGNORED, self.multiple)}


@dataclass(frozen=True)
class PairCollator:
    """input_ids and attention_mask (B, S); labels and decoder_input_ids (B, T): the labels moved right by one, behind
    the model's own start token."""

    pad_id: int
    to_decoder: Callable[..., Any]
    """The model's `prepare_decoder_input_ids_from_labels`."""
    multiple: int = 1

    def __call__(self, rows: Sequence[Pair]) -> Tensors:
        batch = _inputs([row.ids for row in rows], self.pad_id, self.multiple)
        labels_BT = pad([row.labels for row in rows], IGNORED, self.multiple)
        return batch | {"labels": labels_BT, "decoder_input_ids": self.to_decoder(labels=labels_BT)}


def _inputs(ids: Sequence[Sequence[int]], pad_id: int, multiple: int) -> Tensors:
    return {
        "input_ids": pad(ids, pad_id, multiple),
        "attention_mask": pad([[1] * len(row) for row in ids], 0, multiple),
    }
