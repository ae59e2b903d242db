"""Words with one tag each: to sub-word tokens with a label on each word's first piece, or on all. Torch-free."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainer_core.contract import RunConfig
from trainer_core.contract.method_options import TokenClassificationOptions
from trainer_core.data.encode import IGNORED
from trainer_core.data.examples import TokensExample
from trainer_core.data.label_map import LabelMap, check_metric, describe, make_map
from trainer_core.data.labels import LabelCensus
from trainer_core.data.problems import RowFault
from trainer_core.methods_table import ENTITIES, TAGS
from trainer_core.model.tokenizer import LoadedTokenizer

PREFIXES = frozenset("BIOLUES")


@dataclass(frozen=True, slots=True)
class Tagged:
    """One sentence. `starts` are the places of the words' first pieces, `tags` their tags: names as the file has them
    until the encoder settles, then numbers; `labels` has one for each token and is filled then."""

    ids: Sequence[int]
    words: Sequence[int]
    """For each token the word it is a piece of; -100 for special tokens."""
    starts: Sequence[int]
    tags: Sequence[Any]
    labels: Sequence[int] = ()
    n_dropped_tokens: int = 0

    @property
    def is_truncated(self) -> bool:
        return self.n_dropped_tokens > 0

    @property
    def n_tokens(self) -> int:
        return len(self.ids)

    @property
    def n_learnt(self) -> int:
        return sum(label != IGNORED for label in self.labels) if self.labels else len(self.starts)

    def marked(self) -> Iterator[tuple[int, bool]]:
        return ((id_, label != IGNORED) for id_, label in zip(self.ids, self.labels, strict=True))


class TagEncoder:
    """After `settle`: the names of the tags by number, and whether they spell entities."""

    names: tuple[str, ...]
    has_entities: bool

    def __init__(self, loaded: LoadedTokenizer, config: RunConfig) -> None:
        self._tokenizer = loaded.tokenizer
        self._config = config
        self._options = config.token_classification or TokenClassificationOptions()
        self._column = config.data.columns.tags or "tags"
        # Tags are names even where they look like numbers; whole numbers are named by tag_names.
        self._census = LabelCensus(reads_texts=False)
        self._n_silent = 0
        self._notes: list[str] = []

    def draft(self, example: TokensExample) -> TokensExample:
        tags: Any = tuple(self._named(tag, f"{self._column}[{index}]") for index, tag in enumerate(example.tags))
        for index, tag in enumerate(tags):
            self._census.add(tag, f"{self._column}[{index}]")
        return replace(example, tags=tags)

    def encode(self, drafts: Sequence[TokensExample]) -> Iterator[list[Tagged]]:
        if not drafts:
            return
        # verbose=False: a sentence beyond the model's window is cut below, so the library's warning would mislead.
        texts = [list(draft.tokens) for draft in drafts]
        out = self._tokenizer(texts, is_split_into_words=True, verbose=False)
        cut = self._tokenizer(
            texts, is_split_into_words=True, truncation=True, max_length=self._config.data.max_length, verbose=False
        )
        for index, draft in enumerate(drafts):
            words = cut.word_ids(index)
            n_dropped = len(out["input_ids"][index]) - len(cut["input_ids"][index])
            starts = [at for at, word in enumerate(words) if word is not None and (at == 0 or words[at - 1] != word)]
            self._n_silent += 0 if n_dropped else len(draft.tokens) - len(starts)
            yield [
                Tagged(
                    ids=array("i", cut["input_ids"][index]),
                    words=array("i", [IGNORED if word is None else word for word in words]),
                    starts=array("i", starts),
                    tags=[draft.tags[words[at]] for at in starts],
                    n_dropped_tokens=n_dropped,
                )
            ]

    def settle(self, train: list[Tagged], held_out: list[Tagged] | None) -> tuple[list[Tagged], list[Tagged] | None]:
        label_map = make_map(self._census, f"dataset.columns.{self._column}")
        self.names = label_map.names
        self.has_entities = all(name == "O" or (name[:1] in PREFIXES and name[1:2] == "-") for name in self.names)
        check_metric(self._config, TAGS | (ENTITIES if self.has_entities else {}))
        if not self.has_entities:
            self._notes.append("The tags are not spelt as entities (O, B-, I- and so on): entities are not counted.")
        if self._n_silent:
            self._notes.append(f"{self._n_silent} words have no token in this vocabulary; they are left out.")
        counts, held_counts = _counts(train), None if held_out is None else _counts(held_out)
        self._notes += describe(label_map, counts, held_counts)
        return (
            [self._labelled(row, label_map) for row in train],
            None if held_out is None else [self._labelled(row, label_map) for row in held_out],
        )

    def notes(self) -> list[str]:
        return [*self._notes, *(f"Tags: {note}." for note in self._census.notes())]

    def _named(self, tag: Any, place: str) -> str | int:
        names = self._options.tag_names
        if names is None or isinstance(tag, str):
            return tag
        if tag >= len(names):
            raise RowFault("bad_tag", f"the tag is {tag}, and tag_names has {len(names)} names, from 0", place)
        return names[tag]

    def _labelled(self, row: Tagged, label_map: LabelMap) -> Tagged:
        ids = label_map.ids
        labels = array("i", [IGNORED] * len(row.ids))
        numbers = array("i", [ids[str(tag)] for tag in row.tags])
        for start, number in zip(row.starts, numbers, strict=True):
            labels[start] = number
            at = start + 1
            while self._options.label_all_tokens and at < len(labels) and row.words[at] == row.words[start]:
                # The rest of a word that begins an entity lies inside it.
                labels[at] = ids.get(f"I-{label_map.names[number].removeprefix('B-')}", number)
                at += 1
        return replace(row, tags=numbers, labels=labels)


def _counts(rows: list[Tagged]) -> Counter[str]:
    return Counter(str(tag) for row in rows for tag in row.tags)
