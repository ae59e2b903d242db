"""A stored file's rows in batches, as drafts that an encoder takes; every row at fault is told by its line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from trainer_core.contract import CauseCode, DataSource
from trainer_core.data.encoders import RowEncoder
from trainer_core.data.formats import to_example
from trainer_core.data.problems import Problems, RowFault, UploadRefused
from trainer_core.data.stored import Row, read_rows
from trainer_core.data.template import TemplateRefusal
from trainer_core.run.faults import Fault

BATCH_ROWS = 512


def stored_rows(path: Path, param: str) -> Iterator[Row]:
    """The file's rows in order. Raises Fault(data_invalid) where it is not there or not as it was stored."""
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


def in_batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while batch := list(islice(rows, BATCH_ROWS)):
        yield batch


def drafts_of(
    batch: Sequence[Row], encoder: RowEncoder[Any], data: DataSource, problems: Problems
) -> tuple[list[int], list[Any]]:
    """Line number and draft of each usable row; what is wrong with the others is added to `problems`."""
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


def rows_at_fault(problems: Problems, param: str) -> Fault:
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
