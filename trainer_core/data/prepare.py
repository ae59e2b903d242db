"""The rows of a run, read strictly, encoded, split and counted: what preflight reports is what training gets.

Every row is read and encoded, in preflight too: the planned steps depend on how many sequences remain, and are exact.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from trainer_core.contract import CauseCode, DataSource, RunConfig
from trainer_core.data.encoded_report import DataReport, histogram, sample_text, sample_tokens
from trainer_core.data.encoders import EncodedRow, RowEncoder, encoder_for
from trainer_core.data.problems import Problems
from trainer_core.data.reading import drafts_of, in_batches, rows_at_fault, stored_rows
from trainer_core.model.tokenizer import LoadedTokenizer
from trainer_core.run.faults import Fault

MAX_LISTED_LINES = 20


R = TypeVar("R", bound=EncodedRow)


@dataclass(frozen=True)
class Prepared(Generic[R]):
    train: Sequence[R]
    eval: Sequence[R] | None
    report: DataReport


@dataclass
class _File(Generic[R]):
    """One file's usable rows (each a list of sequences) and what was counted on the way."""

    rows: list[list[R]] = field(default_factory=list)
    n_rows: int = 0
    n_truncated: int = 0
    dropped: list[int] = field(default_factory=list)
    longest: int = 0
    notes: list[str] = field(default_factory=list)


def prepare(config: RunConfig, loaded: LoadedTokenizer) -> Prepared[Any]:
    """The rows as the job's method takes them; for a method that needs its encoder afterwards see `prepare_rows`."""
    return prepare_rows(config, loaded, encoder_for(config, loaded))


def prepare_rows(config: RunConfig, loaded: LoadedTokenizer, encoder: RowEncoder[R]) -> Prepared[R]:
    """Read and encode all rows. The same config and files give the same sequences in the same order, on every rank.

    Raises Fault: data_invalid with the lines at fault, config_invalid, or no_trainable_tokens.
    """
    data = config.data
    train_file = _encode_file(data.train, "dataset.train", encoder, data)
    eval_file = _encode_file(data.eval, "dataset.eval", encoder, data) if data.eval else None
    train_rows, eval_rows = train_file.rows, eval_file.rows if eval_file else None
    if data.eval is None and data.eval_fraction is not None:
        train_rows, eval_rows = _split(train_rows, data.eval_fraction, config.seed)
    lengths = Counter(len(one.ids) + one.n_dropped_tokens for row in train_rows for one in row)
    train, held_out = encoder.settle(
        [sequence for row in train_rows for sequence in row],
        None if eval_rows is None else [sequence for row in eval_rows for sequence in row],
    )
    files = [train_file, *([eval_file] if eval_file else [])]
    report = DataReport(
        n_train_rows=len(train),
        n_eval_rows=len(held_out or []),
        n_truncated=sum(file.n_truncated for file in files),
        n_dropped=sum(len(file.dropped) for file in files),
        dropped_lines=train_file.dropped[:MAX_LISTED_LINES],
        trained_tokens=sum(sequence.n_learnt for sequence in train),
        total_tokens=sum(sequence.n_tokens for sequence in train),
        histogram=histogram(lengths),
        longest=max(len(sequence.ids) for sequence in train),
        sample=sample_tokens(train[0], loaded),
        sample_text=sample_text(train[0], loaded),
        notes=[*loaded.notes, *encoder.notes(), *(note for file in files for note in file.notes)],
    )
    return Prepared(train, held_out, report)


# ---------------------------------------------------------------------------------------------------------------------
# One file
# ---------------------------------------------------------------------------------------------------------------------


def _encode_file(path: Path, param: str, encoder: RowEncoder[R], data: DataSource) -> _File[R]:
    file: _File[R] = _File()
    problems = Problems()
    for batch in in_batches(stored_rows(path, param)):
        lines, drafts = drafts_of(batch, encoder, data, problems)
        file.n_rows += len(batch)
        if problems.n:
            continue  # the file is refused below; go on only to find the other rows at fault
        for line, sequences in zip(lines, encoder.encode(drafts), strict=True):
            _count(file, line, sequences)
    if problems.n:
        raise rows_at_fault(problems, param)
    if not file.rows:
        raise _nothing_to_learn(file, param, data)
    file.notes = _file_notes(file, param, data)
    return file


def _count(file: _File[R], line: int, sequences: list[R]) -> None:
    file.n_truncated += any(sequence.is_truncated for sequence in sequences)
    file.longest = max([file.longest, *(len(sequence.ids) + sequence.n_dropped_tokens for sequence in sequences)])
    learnt = [sequence for sequence in sequences if sequence.n_learnt]
    if learnt:
        file.rows.append(learnt)
    else:
        file.dropped.append(line)


def _nothing_to_learn(file: _File[R], param: str, data: DataSource) -> Fault:
    if not file.n_rows:
        return Fault(CauseCode.DATA_INVALID, "The file has no rows.", hint="Send at least one row.", param=param)
    cut = f"; {file.n_truncated} were cut at {data.max_length} tokens" if file.n_truncated else ""
    return Fault(
        CauseCode.NO_TRAINABLE_TOKENS,
        f"None of the {file.n_rows} rows has a token to learn{cut}.",
        hint=f"Raise dataset.max_length: the longest row has {file.longest} tokens."
        if file.n_truncated
        else "Only the assistant's replies (or completions) are learnt; see that they are there and not empty.",
        param="dataset.max_length" if file.n_truncated else param,
        line=file.dropped[0],
        details={"lines": file.dropped[:MAX_LISTED_LINES], "n_rows": file.n_rows},
    )


# ---------------------------------------------------------------------------------------------------------------------
# Split and notes
# ---------------------------------------------------------------------------------------------------------------------


def _split(rows: list[list[R]], fraction: float, seed: int) -> tuple[list[list[R]], list[list[R]]]:
    """Train and eval rows in file order; a row's windows stay together. The same seed gives the same split."""
    if len(rows) < 2:
        raise Fault(
            CauseCode.CONFIG_INVALID,
            "eval_fraction needs at least two usable rows, one to train on and one to hold out; the file has one.",
            hint="Send more rows, name an eval file, or leave eval_fraction out.",
            param="dataset.eval_fraction",
        )
    n_eval = min(max(1, round(len(rows) * fraction)), len(rows) - 1)
    chosen = set(random.Random(seed).sample(range(len(rows)), n_eval))
    return (
        [row for index, row in enumerate(rows) if index not in chosen],
        [row for index, row in enumerate(rows) if index in chosen],
    )


def _file_notes(file: _File[R], param: str, data: DataSource) -> list[str]:
    notes = []
    n_sequences = sum(map(len, file.rows))
    if n_sequences > len(file.rows):
        notes.append(f"{param}: {len(file.rows)} texts make {n_sequences} windows of at most {data.max_length} tokens.")
    if file.n_truncated:
        notes.append(f"{param}: {_rows_were(file.n_truncated)} cut at {data.max_length} tokens.")
    if file.dropped:
        lines = ", ".join(map(str, file.dropped[:MAX_LISTED_LINES]))
        more = " and more" if len(file.dropped) > MAX_LISTED_LINES else ""
        what = f"{_rows_were(len(file.dropped))} dropped for want of a token to learn"
        notes.append(f"{param}: {what}: line {lines}{more}.")
    return notes


def _rows_were(n_rows: int) -> str:
    return "1 row was" if n_rows == 1 else f"{n_rows} rows were"
