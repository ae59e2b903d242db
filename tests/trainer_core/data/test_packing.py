"""Several sequences in one row: nothing lost, little wasted, and the same rows every time."""

from __future__ import annotations

from array import array

import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer_core.data.collate import PadCollator
from trainer_core.data.encoded import IGNORED, Encoded
from trainer_core.data.packing import Packed, pack

SIZE = 16


def sequence(number: int, length: int) -> Encoded:
    ids = array("i", [100 * number + position for position in range(length)])
    return Encoded(ids, array("i", [IGNORED, *ids[1:]]))


@given(st.lists(st.integers(1, SIZE), min_size=1, max_size=40))
def test_every_sequence_is_in_one_row_whole(lengths: list[int]) -> None:
    sequences = [sequence(number, length) for number, length in enumerate(lengths, 1)]
    rows = pack(sequences, SIZE)
    found = []
    for row in rows:
        assert isinstance(row, Packed)
        assert len(row.ids) == sum(row.lengths) <= SIZE
        begin = 0
        for length in row.lengths:
            found.append((list(row.ids[begin : begin + length]), list(row.labels[begin : begin + length])))
            begin += length
    assert sorted(found) == sorted((list(one.ids), list(one.labels)) for one in sequences)
    assert rows == pack(sequences, SIZE)
    # Best fit leaves no two rows that would fit into one.
    assert sum(len(row.ids) <= SIZE // 2 for row in rows) <= 1


def test_best_fit_fills_rows() -> None:
    rows = pack([sequence(number, length) for number, length in enumerate([9, 10, 7, 6], 1)], SIZE)
    assert [row.lengths for row in rows] == [(9, 7), (10, 6)]


def test_packed_rows_have_positions_in_place_of_a_mask() -> None:
    rows = pack([sequence(1, 9), sequence(2, 7), sequence(3, 4)], SIZE)
    batch = PadCollator(pad_id=0)(rows)
    assert set(batch) == {"input_ids", "labels", "position_ids", "n_tokens"}
    assert batch["position_ids"].tolist() == [[*range(9), *range(7)], [*range(4), *([0] * 12)]]
    assert int(batch["n_tokens"]) == 20
    assert batch["labels"][0, 9] == batch["labels"][0, 0] == IGNORED
    assert torch.equal(batch["labels"][1, 4:], torch.full((12,), IGNORED))
