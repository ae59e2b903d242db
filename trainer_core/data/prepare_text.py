"""The texts of a pretraining run: counted in preflight, and written once a machine as blocks of tokens for the run.

Nothing of the text is held in memory. The same config and files give the same blocks on every rank, and the counts of
preflight are those of the run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainer_core.contract import CauseCode, DataSource, RunConfig
from trainer_core.contract.method_options import PretrainOptions
from trainer_core.data.blocks import Blocks, TokenWriter, n_blocks, n_learnt
from trainer_core.data.encode import Draft, Encoder
from trainer_core.data.encoded import Encoded
from trainer_core.data.encoded_report import DataReport, histogram, sample_text, sample_tokens
from trainer_core.data.prepare import Prepared
from trainer_core.data.problems import Problems
from trainer_core.data.reading import BATCH_ROWS, drafts_of, rows_at_fault, stored_rows
from trainer_core.model.tokenizer import LoadedTokenizer
from trainer_core.run.faults import Fault

WHOLE = 2**31 - 1  # longer than any text: documents are not cut, blocks are
MAX_LISTED_LINES = 20
BATCH_CHARACTERS = 1 << 18
COUNT_BYTES = 1 << 20


@dataclass
class Texts:
    """One part's tokens, train or eval, and what was counted on the way."""

    writer: TokenWriter
    lengths: Counter[int]
    empty_lines: list[int]
    n_empty: int = 0


def read_texts(config: RunConfig, loaded: LoadedTokenizer, folder: Path | None = None) -> DataReport:
    """Reads and tokenises all texts; with a folder the tokens are written there, for `open_blocks`.

    Raises Fault: data_invalid with the lines at fault, config_invalid, or no_trainable_tokens.
    """
    data = config.data
    encoder = Encoder(loaded, data.model_copy(update={"max_length": WHOLE}))
    train, held_out = _texts(data, folder, "train"), _texts(data, folder, "eval")
    try:
        _read(data, config.seed, encoder, train, held_out)
    finally:
        train.writer.close()
        held_out.writer.close()
    _refuse_nothing(data, train, held_out)
    return _report(config, loaded, encoder, train, held_out)


def open_blocks(config: RunConfig, report: DataReport, folder: Path) -> Prepared[Encoded]:
    """The blocks that `read_texts` wrote."""
    apart = _options(config).document_boundaries == "mask"
    train = Blocks(folder / "train", config.data.max_length, apart=apart)
    held_out = Blocks(folder / "eval", config.data.max_length, apart=apart) if report.n_eval_rows else None
    return Prepared(train, held_out, report)


def _options(config: RunConfig) -> PretrainOptions:
    return config.pretrain or PretrainOptions()


def _texts(data: DataSource, folder: Path | None, name: str) -> Texts:
    return Texts(TokenWriter(folder and folder / name, n_kept=data.max_length), Counter(), [])


def _read(data: DataSource, seed: int, encoder: Encoder, train: Texts, held_out: Texts) -> None:
    chosen: set[int] = set()
    if data.eval is None and data.eval_fraction is not None:
        chosen = _held_out(_count_rows(data.train), data.eval_fraction, seed)
    for line, ids in _documents(data.train, "dataset.train", encoder, data):
        _take(held_out if line - 1 in chosen else train, line, ids)
    if data.eval is not None:
        for line, ids in _documents(data.eval, "dataset.eval", encoder, data):
            _take(held_out, line, ids)


def _documents(path: Path, param: str, encoder: Encoder, data: DataSource) -> Iterator[tuple[int, Encoded]]:
    """Line and tokens of each text, eos at its end."""
    problems = Problems()
    for lines, drafts in _batches(path, param, encoder, data, problems):
        if problems.n:
            continue  # refused below; go on only to find the other rows at fault
        for line, sequences in zip(lines, encoder.encode(drafts), strict=True):
            yield line, sequences[0] if sequences else Encoded((), ())
    if problems.n:
        raise rows_at_fault(problems, param)


def _batches(
    path: Path, param: str, encoder: Encoder, data: DataSource, problems: Problems
) -> Iterator[tuple[list[int], list[Draft]]]:
    """Lines and drafts of some rows at a time, by their characters: texts may be long."""
    lines: list[int] = []
    drafts: list[Draft] = []
    n_characters = 0
    for row in stored_rows(path, param):
        more_lines, more = drafts_of([row], encoder, data, problems)
        lines, drafts = lines + more_lines, drafts + more
        n_characters += sum(len(draft.text) for draft in more)
        if n_characters > BATCH_CHARACTERS or len(lines) >= BATCH_ROWS:
            yield lines, drafts
            lines, drafts, n_characters = [], [], 0
    yield lines, drafts


def _take(texts: Texts, line: int, document: Encoded) -> None:
    if len(document.ids) < 2:  # eos alone
        texts.n_empty += 1
        texts.empty_lines += [line] if len(texts.empty_lines) < MAX_LISTED_LINES else []
        return
    texts.lengths[len(document.ids)] += 1
    texts.writer.add(document.ids)


def _count_rows(path: Path) -> int:
    """Rows of a stored file, each of which ends with a line feed."""
    with path.open("rb") as file:
        return sum(part.count(b"\n") for part in iter(lambda: file.read(COUNT_BYTES), b""))


def _held_out(n_rows: int, fraction: float, seed: int) -> set[int]:
    if n_rows < 2:
        raise Fault(
            CauseCode.CONFIG_INVALID,
            f"eval_fraction needs at least two texts, one to train on and one to hold out; the file has {n_rows}.",
            hint="Send more rows, name an eval file, or leave eval_fraction out.",
            param="dataset.eval_fraction",
        )
    n_eval = min(max(1, round(n_rows * fraction)), n_rows - 1)
    return set(random.Random(seed).sample(range(n_rows), n_eval))


def _refuse_nothing(data: DataSource, train: Texts, held_out: Texts) -> None:
    is_evaluated = data.eval is not None or data.eval_fraction is not None
    parts = [(train, "dataset.train"), *([(held_out, "dataset.eval" if data.eval else "dataset.train")] * is_evaluated)]
    for texts, param in parts:
        if texts.writer.n_tokens < 2:
            raise Fault(
                CauseCode.NO_TRAINABLE_TOKENS,
                f"The texts have no token to learn: {texts.n_empty} of them are empty.",
                hint="Send rows whose text is not empty.",
                param=param,
                line=next(iter(texts.empty_lines), None),
                details={"lines": texts.empty_lines},
            )


def _report(config: RunConfig, loaded: LoadedTokenizer, encoder: Encoder, train: Texts, held_out: Texts) -> DataReport:
    size = config.data.max_length
    apart = _options(config).document_boundaries == "mask"
    writer = train.writer
    first = Encoded(writer.first, [-100, *writer.first[1:]])
    blocks = n_blocks(writer.n_tokens, size)
    notes = [f"{writer.n_documents} texts of {writer.n_tokens} tokens make {blocks} blocks of at most {size}."]
    if n_empty := train.n_empty + held_out.n_empty:
        notes.append(f"{n_empty} empty texts were dropped.")
    return DataReport(
        n_train_rows=blocks,
        n_eval_rows=n_blocks(held_out.writer.n_tokens, size),
        n_truncated=0,
        n_dropped=train.n_empty + held_out.n_empty,
        dropped_lines=train.empty_lines,
        trained_tokens=n_learnt(writer.n_tokens, writer.n_documents, apart=apart),
        total_tokens=writer.n_tokens,
        histogram=histogram(train.lengths),
        longest=min(size, writer.n_tokens),
        sample=sample_tokens(first, loaded),
        sample_text=sample_text(first, loaded),
        notes=[*loaded.notes, *encoder.notes(), *notes],
    )
