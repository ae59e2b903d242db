"""Puts sequences of unequal length into one batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainer_core.data.encoded import IGNORED, Encoded
from trainer_core.data.packing import Packed


class PadCollator:
    """Pads on the right. Padding is known by its position alone, so labels of real tokens stay as they are, whatever
    their ids: an eos that doubles as pad token keeps its label.

    pad_to_multiple_of rounds T up, for devices that are faster on multiples of 8 or 64.
    """

    def __init__(self, pad_id: int, pad_to_multiple_of: int | None = None) -> None:
        self._pad_id = pad_id
        self._multiple = pad_to_multiple_of or 1

    def __call__(self, sequences: Sequence[Encoded]) -> dict[str, torch.Tensor]:
        """input_ids, attention_mask and labels, each int64 of shape (B, T).

        T is the longest sequence's length. Past a sequence's end: pad id, mask 0, label -100. Packed rows have
        position_ids (B, T) in place of the mask, counted from 0 in each sequence and 0 on padding, by which attention
        keeps them apart, and the number of real tokens as n_tokens.
        """
        longest = max(len(sequence.ids) for sequence in sequences)
        shape = (len(sequences), -(-longest // self._multiple) * self._multiple)
        input_ids_BT = torch.full(shape, self._pad_id, dtype=torch.int64)
        labels_BT = torch.full(shape, IGNORED, dtype=torch.int64)
        for row, sequence in enumerate(sequences):
            length = len(sequence.ids)
            input_ids_BT[row, :length] = torch.tensor(sequence.ids, dtype=torch.int64)
            labels_BT[row, :length] = torch.tensor(sequence.labels, dtype=torch.int64)
        return {"input_ids": input_ids_BT, "labels": labels_BT} | _apart(sequences, shape)


def _apart(sequences: Sequence[Encoded], shape: tuple[int, int]) -> dict[str, torch.Tensor]:
    """What tells attention which tokens belong together."""
    packed_rows = [sequence for sequence in sequences if isinstance(sequence, Packed)]
    if packed_rows:
        position_ids_BT = torch.zeros(shape, dtype=torch.int64)
        for row, packed in enumerate(packed_rows):
            position_ids_BT[row, : len(packed.ids)] = torch.cat([torch.arange(n) for n in packed.lengths])
        return {"position_ids": position_ids_BT, "n_tokens": torch.tensor(sum(len(row.ids) for row in packed_rows))}
    attention_mask_BT = torch.zeros(shape, dtype=torch.int64)
    for row, sequence in enumerate(sequences):
        attention_mask_BT[row, : len(sequence.ids)] = 1
    return {"attention_mask": attention_mask_BT}
