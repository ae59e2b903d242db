"""What is reported of a run's rows once they are encoded: counts, lengths, and the first as the model sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from trainer_core.contract import SampleToken, TokenHistogram
from trainer_core.data.encoders import EncodedRow
from trainer_core.model.tokenizer import LoadedTokenizer

MAX_SAMPLE_TOKENS = 2048
MAX_SAMPLE_CHARACTERS = 20_000
N_BINS = 16


@dataclass(frozen=True)
class DataReport:
    """Counts over train and eval together, where it does not say otherwise. A long text counts as several rows."""

    n_train_rows: int
    n_eval_rows: int
    n_truncated: int
    n_dropped: int
    dropped_lines: list[int]  # of the train file, the first 20
    trained_tokens: int  # tokens with a label in one pass over train
    total_tokens: int  # of train
    histogram: TokenHistogram  # of train, before cutting and packing
    longest: int  # tokens of the longest row that is trained on
    sample: list[SampleToken]
    sample_text: str
    notes: list[str]


def histogram(lengths: Mapping[int, int]) -> TokenHistogram:
    """Equal bins from 0 past the longest row; `lengths` says how many rows have each."""
    longest = max(lengths)
    mean = sum(length * n_rows for length, n_rows in lengths.items()) / sum(lengths.values())
    width = -(-(longest + 1) // N_BINS)
    counts = [0] * -(-(longest + 1) // width)
    for length, n_rows in lengths.items():
        counts[length // width] += n_rows
    edges = [index * width for index in range(len(counts) + 1)]
    return TokenHistogram(edges=edges, counts=counts, longest=longest, mean=mean)


def sample_tokens(row: EncodedRow, loaded: LoadedTokenizer) -> list[SampleToken]:
    """The sequence token by token; tokens that are parts of one character stay together."""
    sample: list[SampleToken] = []
    held: list[int] = []
    is_learnt = False
    for id_, is_learnt in islice(row.marked(), MAX_SAMPLE_TOKENS):
        held.append(id_)
        text: Any = loaded.tokenizer.decode(held)
        if "\ufffd" in text and len(held) < 4:
            continue  # a character has at most four bytes
        sample.append(SampleToken(text=text, learnt=is_learnt))
        held = []
    if held:
        sample.append(SampleToken(text=loaded.tokenizer.decode(held), learnt=is_learnt))
    return sample


def sample_text(row: EncodedRow, loaded: LoadedTokenizer) -> str:
    """The sequence as text, special tokens and all."""
    text: str = loaded.tokenizer.decode([id_ for id_, _ in row.marked()])
    return text[:MAX_SAMPLE_CHARACTERS]
