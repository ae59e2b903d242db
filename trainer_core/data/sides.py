"""A chosen and a rejected reply as one row: what the methods that compare replies share. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer_core.data.encoded import Encoded


@dataclass(frozen=True, slots=True)
class Sides:
    """Two sequences that belong together; what is learnt of them a method says."""

    chosen: Encoded
    rejected: Encoded

    @property
    def ids(self) -> Sequence[int]:
        return max(self.chosen.ids, self.rejected.ids, key=len)

    @property
    def n_dropped_tokens(self) -> int:
        return max(self.chosen.n_dropped_tokens, self.rejected.n_dropped_tokens)

    @property
    def is_truncated(self) -> bool:
        return self.n_dropped_tokens > 0

    @property
    def n_tokens(self) -> int:
        return self.chosen.n_tokens + self.rejected.n_tokens
