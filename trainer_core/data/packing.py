"""Several sequences in one row, so that little of a batch is padding. Torch-free.

Nothing of a sequence may look into another: the collator gives each positions of its own, and the trainer proves on
the loaded model that these keep them apart before it makes a step.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from trainer_core.data.encoded import Encoded


@dataclass(frozen=True, slots=True)
class Packed(Encoded):
    """Sequences one after the other; `lengths` says where each ends. The first label of each is -100."""

    lengths: tuple[int, ...] = ()


def pack(sequences: Sequence[Encoded], size: int) -> list[Packed]:
    """Rows of at most `size` tokens by best fit, longest first; the same sequences give the same rows.

    Rows come in the order of their earliest sequence, which keep their own order inside a row.
    """
    rooms: list[tuple[int, int]] = []  # (tokens left, row), sorted
    rows: list[list[int]] = []
    for index in sorted(range(len(sequences)), key=lambda index: -len(sequences[index].ids)):
        length = len(sequences[index].ids)
        fit = bisect_left(rooms, (length, -1))
        if fit == len(rooms):
            left, row = size, len(rows)
            rows.append([])
        else:
            left, row = rooms.pop(fit)
        rows[row].append(index)
        insort(rooms, (left - length, row))
    return [_joined([sequences[index] for index in sorted(row)]) for row in sorted(rows, key=min)]


def _joined(sequences: Sequence[Encoded]) -> Packed:
    ids, labels = array("i"), array("i")
    for sequence in sequences:
        ids.extend(sequence.ids)
        labels.extend(sequence.labels)
    n_dropped = sum(sequence.n_dropped_tokens for sequence in sequences)
    return Packed(ids, labels, n_dropped, tuple(len(sequence.ids) for sequence in sequences))


def fill_note(n_sequences: int, rows: Sequence[Packed], size: int) -> str:
    """For the report: what packing saves."""
    n_tokens = sum(row.n_tokens for row in rows)
    full = n_tokens / (len(rows) * size)
    return f"{n_sequences} sequences are packed into {len(rows)} rows of at most {size} tokens, {full:.1%} full."
