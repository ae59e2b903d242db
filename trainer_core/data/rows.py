"""The strict reader of uploaded datasets: every row is checked before anything is kept, and each complaint has a line.

Pure: standard library and pydantic only; the API uses it at upload. Memory does not grow with the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from trainer_core.data.decode import json_type, null_non_finite, spell, walk
from trainer_core.data.examples import (
    AnyExample,
    ChatExample,
    FeedbackExample,
    LabelExample,
    PreferenceExample,
    PromptOnly,
    TokensExample,
)
from trainer_core.data.fields import asks, has_fields, needs, recognise
from trainer_core.data.formats import to_example
from trainer_core.data.labels import LabelCensus
from trainer_core.data.problems import Problems, RowFault, RowProblem, UploadRefused, printable
from trainer_core.data.report import DatasetFormat, DatasetReport, Limits
from trainer_core.data.scan import Found, Tally, scan
from trainer_core.data.sources import Content, open_content
from trainer_core.data.stored import Row, read_rows
from trainer_core.data.table_scan import scan_table

__all__ = [
    "DatasetReport", "Limits", "Row", "RowFault", "RowProblem", "UploadRefused", "normalise", "read_rows",
]  # fmt: skip

MAX_COLUMNS = 1000
MAX_COLUMN_NAME = 256


def normalise(source: Path, target: Path, limits: Limits = Limits()) -> DatasetReport:
    """Check the uploaded file `source` and write its rows to `target`: UTF-8 JSONL, one row a line, values as sent.

    Takes JSONL, a JSON array or a table with a header, in UTF-8 or UTF-16 with its mark, gzip or not. Raises
    UploadRefused, which leaves nothing at `target`; it appears only when it is whole.
    """
    partial = target.with_name(f"{target.name}.partial")
    try:
        with source.open("rb") as file, partial.open("wb") as out:
            report = _Normaliser(limits, out).run(file)
            out.flush()
            os.fsync(out.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return report


class _Normaliser:
    """One pass over one file: collects problems while it copies, and stops copying at the first of them."""

    def __init__(self, limits: Limits, out: BinaryIO) -> None:
        self._limits = limits
        self._out = out
        self._digest = hashlib.sha256()
        self._size = 0
        self._problems = Problems()
        self._format: DatasetFormat = "columns"
        self._unfit = Problems()  # rows before the first that fits a format: at fault only if there is one
        self._weak = Problems()  # rows of prompts: at fault only if there are rows of a format that has more
        self._columns: dict[str, set[str]] = {}
        self._has_more_columns = False
        self._n_rows = 0
        self._n_with_tools = 0
        self._n_nulled = 0
        self._n_sharegpt = 0
        self._ignored_keys: set[str] = set()
        self._labels = LabelCensus()
        self._tags = LabelCensus(reads_texts=False)

    def run(self, file: BinaryIO) -> DatasetReport:
        content = open_content(file, self._limits)
        tally = Tally()
        for found in _rows(content, self._limits.max_line_bytes, tally):
            self._n_rows += 1
            if self._n_rows > self._limits.max_rows:
                raise UploadRefused(
                    "too_many_rows", f"the file has more than {self._limits.max_rows} rows", "Split it."
                )
            try:
                self._take(found)
            except RowFault as fault:
                self._problems.add(fault, found.line, found.byte_offset)
        self._settle_format()
        if self._problems.n:
            self._problems.refuse()
        if not self._n_rows:
            raise UploadRefused("empty_file", "the file holds no rows", "Send one JSON object a line.")
        return self._report(content.notes, tally)

    def _take(self, found: Found) -> None:
        if found.fault is not None:
            raise found.fault
        if found.parsed is None:
            raise AssertionError("a row is either parsed or at fault")
        row = found.parsed.value
        if not isinstance(row, dict):
            raise RowFault("not_an_object", f"a row must be a JSON object, found {json_type(row)}")
        self._check_format(row, found.line)
        if self._format != "columns":
            example = to_example(self._format, {}, row)
            self._note_example(example, row)
            if found.parsed.n_non_finite:
                _refuse_non_finite(example)
        if self._problems.n:
            return
        text = found.text
        if found.parsed.n_non_finite:
            self._n_nulled += found.parsed.n_non_finite
            row = null_non_finite(row)
            text = json.dumps(row, ensure_ascii=False, allow_nan=False)
        self._note_columns(row)
        self._write(text)

    def _check_format(self, row: dict[str, Any], line: int) -> None:
        """All rows must have the columns of the first one that fits a format; one that only asks does not settle it."""
        if self._format in ("columns", "prompts"):
            found = recognise(row)
            if found == "columns" and self._format == "columns":
                self._unfit.add(RowFault("mixed_formats", _unlike(row)), line)
            elif found == "prompts":
                self._weak.add(RowFault("mixed_formats", _unlike(row)), line)
            self._format = found if found != "columns" else self._format
        if self._format != "columns" and not has_fields(self._format, row):
            rows = f"the rows before are {self._format}"
            raise RowFault("mixed_formats", f"{_unlike(row)}; {rows}, and {needs(self._format)}")

    def _settle_format(self) -> None:
        """Rows that fit no format are at fault once other rows do fit one; rows of prompts, once others have more."""
        if self._format == "columns":
            return
        for problems in (self._unfit,) if self._format == "prompts" else (self._unfit, self._weak):
            for problem in problems.listed:
                message = f"{problem.message}; other rows are {self._format}, and {needs(self._format)}"
                self._problems.listed.append(problem.model_copy(update={"message": message}))
            self._problems.n += problems.n
        self._problems.listed.sort(key=lambda problem: problem.line)
        del self._problems.listed[20:]

    def _note_example(self, example: AnyExample, row: dict[str, Any]) -> None:
        if isinstance(example, ChatExample):
            self._n_with_tools += example.tools is not None
            self._n_sharegpt += row.get("messages") is None
            if example.ignored_keys and len(self._ignored_keys) < MAX_COLUMNS:
                self._ignored_keys.update(example.ignored_keys)
        elif isinstance(example, LabelExample | FeedbackExample):
            self._labels.add(example.label, "label")
        elif isinstance(example, TokensExample):
            for tag in example.tags:
                self._tags.add(tag, "tags")

    def _note_columns(self, row: dict[str, Any]) -> None:
        for name, value in row.items():
            types = self._columns.get(name)
            if types is None:
                if len(self._columns) >= MAX_COLUMNS or len(name) > MAX_COLUMN_NAME or "\0" in name:
                    self._has_more_columns = True
                    continue
                types = self._columns[name] = set()
            types.add(json_type(value))

    def _write(self, text: str) -> None:
        line = text.encode("utf-8") + b"\n"
        self._out.write(line)
        self._digest.update(line)
        self._size += len(line)

    def _report(self, notes: list[str], tally: Tally) -> DatasetReport:
        labels = self._tags if self._format == "token_classification" else self._labels
        return DatasetReport(
            format=self._format,
            n_rows=self._n_rows,
            n_blank_lines=tally.n_blank_lines,
            columns={name: sorted(types) for name, types in self._columns.items()},
            size_bytes=self._size,
            sha256=self._digest.hexdigest(),
            n_rows_with_tools=self._n_with_tools,
            labels={printable(name): n for name, n in labels.listed.items()},
            n_labels=labels.n_labels,
            label_kind=labels.kind,
            notes=[*notes, *self._notes(tally), *labels.notes()],
        )

    def _notes(self, tally: Tally) -> list[str]:
        notes: list[str] = []
        if tally.n_inner_boms:
            notes.append(f"{tally.n_inner_boms} byte-order marks inside the file removed")
        if tally.n_blank_lines:
            notes.append(f"{tally.n_blank_lines} blank lines left out")
        if self._n_nulled:
            notes.append(f"{self._n_nulled} numbers that are not finite became null in extra columns")
        if self._n_sharegpt:
            notes.append(f"{self._n_sharegpt} rows with conversations are read as messages")
        if self._ignored_keys:
            names = ", ".join(printable(name[:60]) for name in sorted(self._ignored_keys)[:10])
            notes.append(f"keys of messages that are ignored: {names}")
        if self._has_more_columns:
            limits = f"{MAX_COLUMNS} columns, names of {MAX_COLUMN_NAME} characters, none of them zero"
            notes.append(f"not all columns are listed; the limits are {limits}")
        return notes


def _unlike(row: dict[str, Any]) -> str:
    if asks(row):
        return "the conversation ends with the user, as prompts do"
    names = ", ".join(printable(name[:30]) for name in list(row)[:6]) or "none"
    found = recognise(row)
    fit = "fit no format" if found == "columns" else f"are those of {found}"
    return f"the row's columns ({names}) {fit}"


def _rows(content: Content, max_row_bytes: int, tally: Tally) -> Iterator[Found]:
    if content.table is not None:
        return scan_table(content, content.table, max_row_bytes, tally)
    return scan(content, max_row_bytes, tally)


def _refuse_non_finite(example: AnyExample) -> None:
    """NaN may stand in an extra column, never in what is trained on (a tool's schema, a call's arguments)."""
    if isinstance(example, ChatExample):
        trained: dict[str, object] = {"messages": list(example.messages), "tools": example.tools}
    elif isinstance(example, PreferenceExample | PromptOnly):
        trained = {"prompt": _listed(example.prompt), "tools": example.tools}
        if isinstance(example, PreferenceExample):
            trained |= {"chosen": _listed(example.chosen), "rejected": _listed(example.rejected)}
    else:
        return
    for path, item in walk(trained):
        if isinstance(item, float) and item - item != 0:
            raise RowFault("not_finite", "NaN and infinities cannot be trained on", spell(path))


def _listed(part: object) -> object:
    """`walk` looks into lists."""
    return list(part) if isinstance(part, tuple) else part
