"""Blocks of tokens: every token but the first learnt once, read from a file as they are needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_core.data.blocks import Blocks, TokenWriter, n_blocks, n_learnt
from trainer_core.data.encoded import IGNORED
from trainer_core.data.packing import Packed

DOCUMENTS = st.lists(st.integers(2, 30), min_size=1, max_size=12)


def written(folder: Path, lengths: list[int]) -> list[int]:
    writer = TokenWriter(folder / "train", n_kept=8)
    tokens = list(range(1000, 1000 + sum(lengths)))
    begin = 0
    for length in lengths:
        writer.add(tokens[begin : begin + length])
        begin += length
    writer.close()
    assert (writer.n_tokens, writer.n_documents) == (len(tokens), len(lengths))
    assert list(writer.first) == tokens[:8]
    return tokens


@given(lengths=DOCUMENTS, size=st.integers(8, 20), apart=st.booleans())
def test_every_token_is_learnt_once(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], size: int, apart: bool
) -> None:
    folder = tmp_path_factory.mktemp("blocks")
    tokens = written(folder, lengths)
    blocks = Blocks(folder / "train", size, apart=apart)
    learnt = [label for block in blocks for label in block.labels if label != IGNORED]
    firsts = {tokens[sum(lengths[:index])] for index in range(len(lengths))}
    assert learnt == [token for token in tokens[1:] if not (apart and token in firsts)]
    assert len(learnt) == n_learnt(len(tokens), len(lengths), apart=apart)
    assert len(blocks) == n_blocks(len(tokens), size)
    assert all(len(block.ids) == size for block in blocks[:-1])


def test_documents_that_stand_apart_are_sequences_of_their_own(tmp_path: Path) -> None:
    written(tmp_path, [3, 4, 12])
    first, second, third = Blocks(tmp_path / "train", 8, apart=True)
    assert isinstance(first, Packed)
    assert first.lengths == (3, 4, 1)
    assert isinstance(second, Packed)
    assert second.lengths == (8,)
    assert isinstance(third, Packed)
    assert third.lengths == (5,)


def test_an_index_past_the_end_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, [9])
    with pytest.raises(IndexError):
        Blocks(tmp_path / "train", 8, apart=False)[2]
