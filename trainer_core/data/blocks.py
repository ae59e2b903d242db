"""Documents one after the other in a file of token ids, and rows of fixed length read from it as they are needed.

What is held in memory does not grow with the text: the file is mapped. Torch-free.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np

from trainer_core.data.encoded import IGNORED, Encoded
from trainer_core.data.packing import Packed

IDS = np.dtype("int32")
STARTS = np.dtype("int64")


class TokenWriter:
    """Writes documents to `{path}.ids` (int32 a token) and where each begins to `{path}.starts` (int64).

    Without a path it counts alone. The first `n_kept` tokens are at hand as `first`.
    """

    def __init__(self, path: Path | None, n_kept: int) -> None:
        self.n_tokens = 0
        self.n_documents = 0
        self.first = array("i")
        self._n_kept = n_kept
        self._ids = path and path.with_suffix(".ids").open("wb")
        self._starts = path and path.with_suffix(".starts").open("wb")

    def add(self, ids: Sequence[int]) -> None:
        if self._ids and self._starts:
            np.asarray(ids, dtype=IDS).tofile(self._ids)
            np.asarray([self.n_tokens], dtype=STARTS).tofile(self._starts)
        self.first.extend(ids[: self._n_kept - len(self.first)])
        self.n_tokens += len(ids)
        self.n_documents += 1

    def close(self) -> None:
        for file in (self._ids, self._starts):
            if file:
                file.close()


def n_blocks(n_tokens: int, size: int) -> int:
    """Rows of at most `size` tokens that share one token, so that every token but the first is learnt once."""
    return max(0, -(-(n_tokens - 1) // (size - 1)))


def n_learnt(n_tokens: int, n_documents: int, *, apart: bool) -> int:
    """Tokens with a label: all but the very first, or the first of each document where these stand apart."""
    return n_tokens - n_documents if apart else max(0, n_tokens - 1)


class Blocks(Sequence[Encoded]):
    """Block i has the tokens from i * (size - 1) on, `size` of them; the last one may be shorter."""

    def __init__(self, path: Path, size: int, *, apart: bool) -> None:
        self._ids = np.memmap(path.with_suffix(".ids"), dtype=IDS, mode="r")
        self._starts = np.memmap(path.with_suffix(".starts"), dtype=STARTS, mode="r")
        self._size = size
        self._apart = apart

    def __len__(self) -> int:
        return n_blocks(len(self._ids), self._size)

    @overload
    def __getitem__(self, index: int) -> Encoded: ...
    @overload
    def __getitem__(self, index: slice) -> list[Encoded]: ...
    def __getitem__(self, index: int | slice) -> Encoded | list[Encoded]:
        if isinstance(index, slice):
            return [self._block(number) for number in range(*index.indices(len(self)))]
        return self._block(range(len(self))[index])

    def _block(self, number: int) -> Encoded:
        begin = number * (self._size - 1)
        ids = np.array(self._ids[begin : begin + self._size])
        labels = ids.copy()
        labels[0] = IGNORED
        if not self._apart:
            return Encoded(array("i", ids.tobytes()), array("i", labels.tobytes()))
        first, last = np.searchsorted(self._starts, (begin + 1, begin + len(ids)))
        cuts = np.asarray(self._starts[first:last]) - begin
        labels[cuts] = IGNORED
        lengths = np.diff([0, *cuts, len(ids)])
        return Packed(array("i", ids.tobytes()), array("i", labels.tobytes()), lengths=tuple(int(n) for n in lengths))
