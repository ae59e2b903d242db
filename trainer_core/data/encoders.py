"""Which encoder turns a method's rows into tokens, and what every encoder can do. Torch-free: preflight uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from trainer_core.contract import RunConfig
from trainer_core.data.encode import Encoder
from trainer_core.data.encode_labels import LabelEncoder
from trainer_core.data.encode_pairs import PairEncoder
from trainer_core.data.encode_preferences import PreferenceEncoder
from trainer_core.data.encode_rewards import RewardEncoder
from trainer_core.data.encode_tags import TagEncoder
from trainer_core.model.tokenizer import LoadedTokenizer


class EncodedRow(Protocol):
    """One sequence (or a group of them that belong together) as the data set of a Trainer holds it."""

    @property
    def ids(self) -> Sequence[int]:
        """The tokens whose number decides what a batch costs."""

    @property
    def n_dropped_tokens(self) -> int:
        """Cut off at max_length."""

    @property
    def is_truncated(self) -> bool: ...

    @property
    def n_tokens(self) -> int:
        """All tokens, of every part."""

    @property
    def n_learnt(self) -> int:
        """Labels that it brings to the loss; a row without any is dropped."""

    def marked(self) -> Iterator[tuple[int, bool]]:
        """For the report's sample: each token, and whether it is learnt."""


R = TypeVar("R", bound=EncodedRow)


class RowEncoder(Protocol[R]):
    """Examples to rows, in batches; then a last look at all rows together."""

    def draft(self, example: Any) -> Any:
        """What `encode` takes. Raises RowFault or TemplateRefusal for a row that cannot be used."""

    def encode(self, drafts: Sequence[Any]) -> Iterator[list[R]]:
        """The rows of each draft, in order."""

    def settle(self, train: list[R], held_out: list[R] | None) -> tuple[list[R], list[R] | None]:
        """Called once, after all rows of both files and the split: what depends on all of them. Raises Fault."""

    def notes(self) -> list[str]:
        """For the report; called after `settle`."""


def encoder_for(config: RunConfig, loaded: LoadedTokenizer) -> RowEncoder[Any]:
    return ENCODERS[config.method](config, loaded)


ENCODERS: dict[str, Callable[[RunConfig, LoadedTokenizer], RowEncoder[Any]]] = {
    "sft": lambda config, loaded: Encoder(loaded, config.data, packs=bool(config.sft and config.sft.packing)),
    "seq2seq": lambda config, loaded: PairEncoder(loaded, config),
    "classification": lambda config, loaded: LabelEncoder(loaded, config),
    "token_classification": lambda config, loaded: TagEncoder(loaded, config),
    "preference": lambda config, loaded: PreferenceEncoder(loaded, config),
    "reward": lambda config, loaded: RewardEncoder(loaded, config),
}
