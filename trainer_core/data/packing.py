"""Several sequences in one row, so that little of a batch is padding. Torch-free.

Nothing of a sequence may look into another: the collator gives each positions of its own, and the trainer proves on
the loaded model that these keep them apart before it makes a step.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainer_core.data.encoded import IGNORED, Encoded


@dataclass(frozen=True, slots=True)
class Packed:
    """Sequences one after the other; `lengths` says where each ends. The first label of each is -100."""

    ids: Sequence[int]
    labels: Sequence[int]
    lengths: tuple[int, ...]
    n_dropped_tokens: int = 0

    @property
    def is_truncated(self) -> bool:
        return self.n_dropped_tokens > 0

    @property
    def n_tokens(self) -> int:
        return len(self.ids)

    @property
    def n_learnt(self) -> int:
        return sum(label != IGNORED for label in self.labels)

    def marked(self) -> Iterator[tuple[int, bool]]:
        """Each token, and whether it is learnt."""
        return ((id_, label != IGNORED) for id_, label in zip(self.ids, self.labels, strict=True))


def pack(sequences: Sequence[Encoded | Packed], size: int) -> list[Packed]:
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


def _joined(sequences: Sequence[Encoded | Packed]) -> Packed:
    ids, labels = array("i"), array("i")
    for sequence in sequences:
        ids.extend(sequence.ids)
        labels.extend(sequence.labels)
    return Packed(
        ids, labels, tuple(len(sequence.ids) for sequence in sequences), sum(one.n_dropped_tokens for one in sequences)
    )


def fill_note(n_sequences: int, rows: Sequence[Packed], size: int) -> str:
    """For the report: what packing saves."""
    n_tokens = sum(row.n_tokens for row in rows)
    full = n_tokens / (len(rows) * size)
    return f"{n_sequences} sequences are packed into {len(rows)} rows of at most {size} tokens, {full:.1%} full."
