"""The rows of a run, read strictly, encoded, split and counted: what preflight reports is what training gets.

Every row is read and encoded, in preflight too: the planned steps depend on how many sequences remain, and are exact.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from trainer_core.contract import CauseCode, DataSource, RunConfig, SampleToken, TokenHistogram
from trainer_core.data.encoders import EncodedRow, RowEncoder, encoder_for
from trainer_core.data.formats import to_example
from trainer_core.data.problems import Problems, RowFault, UploadRefused
from trainer_core.data.stored import Row, read_rows
from trainer_core.data.template import TemplateRefusal
from trainer_core.model.tokenizer import LoadedTokenizer
from trainer_core.run.faults import Fault

BATCH_ROWS = 512
MAX_LISTED_LINES = 20
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
    histogram: TokenHistogram  # of train, before cutting
    sample: list[SampleToken]
    sample_text: str
    notes: list[str]


R = TypeVar("R", bound=EncodedRow)


@dataclass(frozen=True)
class Prepared(Generic[R]):
    train: list[R]
    eval: list[R] | None
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
        histogram=_histogram([len(sequence.ids) + sequence.n_dropped_tokens for sequence in train]),
        sample=_sample(train[0], loaded),
        sample_text=loaded.tokenizer.decode([id_ for id_, _ in train[0].marked()])[:MAX_SAMPLE_CHARACTERS],
        notes=[*loaded.notes, *encoder.notes(), *(note for file in files for note in file.notes)],
    )
    return Prepared(train, held_out, report)


# ---------------------------------------------------------------------------------------------------------------------
# One file
# ---------------------------------------------------------------------------------------------------------------------


def _encode_file(path: Path, param: str, encoder: RowEncoder[R], data: DataSource) -> _File[R]:
    file: _File[R] = _File()
    problems = Problems()
    for batch in _batches(_rows(path, param)):
        lines, drafts = _drafts(batch, encoder, data, problems)
        file.n_rows += len(batch)
        if problems.n:
            continue  # the file is refused below; go on only to find the other rows at fault
        for line, sequences in zip(lines, encoder.encode(drafts), strict=True):
            _count(file, line, sequences)
    if problems.n:
        raise _rows_at_fault(problems, param)
    if not file.rows:
        raise _nothing_to_learn(file, param, data)
    file.notes = _file_notes(file, param, data)
    return file


def _rows(path: Path, param: str) -> Iterator[Row]:
    try:
        yield from read_rows(path)
    except UploadRefused as refused:
        details = {"problems": [problem.model_dump() for problem in refused.problems]}
        line = refused.problems[0].line if refused.problems else None
        raise Fault(
            CauseCode.DATA_INVALID, refused.message, hint=refused.hint, param=param, line=line, details=details
        ) from refused
    except FileNotFoundError as error:
        raise Fault(
            CauseCode.DATA_INVALID, f"The data file {path.name} is not there.", hint="Upload it again.", param=param
        ) from error


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while batch := list(islice(rows, BATCH_ROWS)):
        yield batch


def _drafts(
    batch: Sequence[Row], encoder: RowEncoder[R], data: DataSource, problems: Problems
) -> tuple[list[int], list[Any]]:
    lines: list[int] = []
    drafts: list[Any] = []
    for row in batch:
        try:
            drafts.append(encoder.draft(to_example(data.format, data.columns.mapped(), row.value)))
            lines.append(row.line)
        except RowFault as fault:
            problems.add(fault, row.line)
        except TemplateRefusal as refusal:
            problems.add(RowFault("template_refused", str(refusal)), row.line)
    return lines, drafts


def _count(file: _File[R], line: int, sequences: list[R]) -> None:
    file.n_truncated += any(sequence.is_truncated for sequence in sequences)
    file.longest = max([file.longest, *(len(sequence.ids) + sequence.n_dropped_tokens for sequence in sequences)])
    learnt = [sequence for sequence in sequences if sequence.n_learnt]
    if learnt:
        file.rows.append(learnt)
    else:
        file.dropped.append(line)


def _rows_at_fault(problems: Problems, param: str) -> Fault:
    first = problems.listed[0]
    where = f"line {first.line}" if first.field is None else f"line {first.line}, {first.field}"
    more = (
        "" if problems.n == 1 else f" ({problems.n} rows cannot be used; the first {len(problems.listed)} are listed)"
    )
    is_template = first.code == "template_refused"
    return Fault(
        CauseCode.DATA_INVALID,
        f"{where}: {first.message}{more}",
        hint="Change these rows to what the model's chat template takes, or choose a model whose template takes them."
        if is_template
        else "Mend the lines named and send the file again.",
        param=param,
        line=first.line,
        details={"problems": [problem.model_dump() for problem in problems.listed], "n_problems": problems.n},
    )


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
# Split and report
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


def _histogram(lengths: list[int]) -> TokenHistogram:
    """Equal bins from 0 past the longest row."""
    longest = max(lengths)
    width = -(-(longest + 1) // N_BINS)
    counts = [0] * -(-(longest + 1) // width)
    for length in lengths:
        counts[length // width] += 1
    edges = [index * width for index in range(len(counts) + 1)]
    return TokenHistogram(edges=edges, counts=counts, longest=longest, mean=sum(lengths) / len(lengths))


def _sample(row: EncodedRow, loaded: LoadedTokenizer) -> list[SampleToken]:
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
