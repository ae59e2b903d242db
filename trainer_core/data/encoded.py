"""One sequence of tokens as the data set of a Trainer holds it. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

IGNORED = -100


@dataclass(frozen=True, slots=True)
class Encoded:
    """One sequence. `ids` and `labels` have one int a token (4 bytes each); a label of -100 is not learnt."""

    ids: Sequence[int]
    labels: Sequence[int]
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
