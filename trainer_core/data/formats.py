"""The dataset formats: recognising one by its columns, mapping a file's own columns, and turning a row into an example.

Pure: standard library and pydantic only. Extra columns are never looked at.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from trainer_core.data.chat_rules import to_chat
from trainer_core.data.decode import json_type
from trainer_core.data.examples import ChatExample, Example, PromptExample, TextExample
from trainer_core.data.problems import FormatError, Problems, RowFault
from trainer_core.data.report import DatasetFormat, DatasetReport, TrainFormat
from trainer_core.data.stored import read_rows
from trainer_core.data.tool_rules import normalise_tools

__all__ = [
    "FIELDS", "ChatExample", "Example", "FormatError", "PromptExample", "RowFault", "TextExample", "TrainFormat",
    "check_columns", "check_rows", "has_fields", "recognise", "to_example",
]  # fmt: skip


@dataclass(frozen=True)
class Fields:
    """A format's own field names."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return self.required + self.optional


# In order of precedence: a row with messages and text is a conversation.
FIELDS: dict[TrainFormat, Fields] = {
    "messages": Fields(("messages",), ("tools", "system")),
    "prompt_completion": Fields(("prompt", "completion"), ("system",)),
    "instruction": Fields(("instruction", "output"), ("input", "system")),
    "text": Fields(("text",)),
}
_ALL_FIELDS = tuple(dict.fromkeys(name for fields in FIELDS.values() for name in fields.all))


def recognise(row: Mapping[str, Any]) -> DatasetFormat:
    """The format whose required columns the row has, by the formats' own names; `columns` if none.

    Tables written as JSON hold every column in every row, null where it does not apply: columns that are all null count
    only if nothing else fits.
    """
    filled = {name: value for name, value in row.items() if value is not None}
    fitting: list[TrainFormat] = [name for name in FIELDS if has_fields(name, row)]
    return next(
        (name for name in fitting if any(field in filled for field in _needed(name))), next(iter(fitting), "columns")
    )


def has_fields(format: TrainFormat, row: Mapping[str, Any]) -> bool:
    """Whether a row has the columns that `format` cannot do without."""
    check = any if format == "messages" else all
    return check(name in row for name in _needed(format))


def _needed(format: TrainFormat) -> tuple[str, ...]:
    """A format's required columns; of a conversation's two names one is enough."""
    return ("messages", "conversations") if format == "messages" else FIELDS[format].required


# ---------------------------------------------------------------------------------------------------------------------
# Row -> example
# ---------------------------------------------------------------------------------------------------------------------


def to_example(format: TrainFormat, columns_mapping: Mapping[str, str], row: Mapping[str, Any]) -> Example:
    """Turn one row into what is trained on. Raises RowFault, with the column as the file names it."""
    if format == "messages":
        return _chat_example(columns_mapping, row)
    if format == "prompt_completion":
        prompt = _text("prompt", columns_mapping, row)
        return PromptExample(prompt, _reply("completion", columns_mapping, row), _system(columns_mapping, row))
    if format == "instruction":
        prompt = _text("instruction", columns_mapping, row)
        more = _text("input", columns_mapping, row, is_optional=True)
        if more.strip():
            prompt = f"{prompt}\n{more}" if prompt.strip() else more
        return PromptExample(prompt, _reply("output", columns_mapping, row), _system(columns_mapping, row))
    text = _text("text", columns_mapping, row)
    if not text.strip():
        raise RowFault("empty_text", "the text is empty; leave the row out", columns_mapping.get("text", "text"))
    return TextExample(text)


def _chat_example(mapping: Mapping[str, str], row: Mapping[str, Any]) -> ChatExample:
    column = mapping.get("messages") or _turns_column(row)
    if column not in row:
        raise _missing(column, row)
    is_sharegpt = column == "conversations"
    # A bare `system` column belongs to ShareGPT files; beside `messages` it is one of the extra columns.
    system = _system(mapping, row) if is_sharegpt or "system" in mapping else None
    tools_column = mapping.get("tools", "tools")
    tools = normalise_tools(row.get(tools_column), tools_column)
    if tools is None and "tools" not in mapping and row.get("functions") is not None:
        tools = normalise_tools(row["functions"], "functions")
    return to_chat(row[column], tools, system, column)


def _turns_column(row: Mapping[str, Any]) -> str:
    """`conversations` only where there is one and no `messages`."""
    has_turns = row.get("messages") is None and row.get("conversations") is not None
    return "conversations" if has_turns else "messages"


def _text(name: str, mapping: Mapping[str, str], row: Mapping[str, Any], *, is_optional: bool = False) -> str:
    column = mapping.get(name, name)
    value = row.get(column)
    if isinstance(value, str):
        return value
    if value is None and is_optional:
        return ""
    if column not in row:
        raise _missing(column, row)
    raise RowFault("not_string", f"expected a string, found {json_type(value)}", column)


def _reply(name: str, mapping: Mapping[str, str], row: Mapping[str, Any]) -> str:
    column = mapping.get(name, name)
    if column not in row:
        raise _missing(column, row)
    value = row[column]
    if not isinstance(value, str):
        raise RowFault("reply_not_string", f"expected a string, found {json_type(value)}", column)
    if not value.strip():
        raise RowFault("empty_reply", "the reply is empty; there is nothing to learn from it", column)
    return value


def _system(mapping: Mapping[str, str], row: Mapping[str, Any]) -> str | None:
    text = _text("system", mapping, row, is_optional=True)
    return text if text.strip() else None


def _missing(column: str, row: Mapping[str, Any]) -> RowFault:
    return RowFault("missing_field", f'the row has no "{column}"{_did_you_mean(column, row)}', column)


# ---------------------------------------------------------------------------------------------------------------------
# A job's column mapping
# ---------------------------------------------------------------------------------------------------------------------


def check_columns(report: DatasetReport, columns: Mapping[str, str]) -> TrainFormat:
    """The format a job trains this dataset in, given its column mapping. Raises FormatError."""
    if not columns:
        if report.format == "columns":
            raise FormatError("columns_needed", _columns_needed(report))
        return report.format
    for name, column in columns.items():
        if name not in _ALL_FIELDS:
            raise FormatError(
                "unknown_field", f'no format has a field "{name}"{_did_you_mean(name, _ALL_FIELDS)}', name
            )
        if column not in report.columns:
            message = f'the dataset has no column "{column}"{_did_you_mean(column, report.columns)}'
            raise FormatError("missing_column", message, name)
    if len(set(columns.values())) < len(columns):
        raise FormatError("column_twice", "one column is mapped to two fields", next(iter(columns)))
    return _mapped_format(report, columns)


def _mapped_format(report: DatasetReport, columns: Mapping[str, str]) -> TrainFormat:
    """The format that has all mapped fields and whose other required fields are in the file under their own names."""
    candidates = [name for name, fields in FIELDS.items() if set(columns) <= set(fields.all)]
    candidates.sort(key=lambda name: name != report.format)  # stable: what was recognised comes first
    if not candidates:
        raise FormatError(
            "mixed_fields", f"no format has all of the fields {', '.join(columns)}; {_needs()}", next(iter(columns))
        )
    for name in candidates:
        if has_fields(name, {**report.columns, **columns}):
            return name
    missing = [name for name in FIELDS[candidates[0]].required if name not in columns and name not in report.columns]
    raise FormatError(
        "missing_column",
        f"{candidates[0]} needs {' and '.join(missing)} too: map {'it' if len(missing) == 1 else 'them'} to one of "
        f"{_names(report)}",
        missing[0],
    )


def _columns_needed(report: DatasetReport) -> str:
    return f"the file has the columns {_names(report)}, which are no known format; say which is which: {_needs()}"


def _needs() -> str:
    return "; ".join(f"{name} needs {' and '.join(fields.required)}" for name, fields in FIELDS.items())


def _names(report: DatasetReport) -> str:
    names = list(report.columns)
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")


def _did_you_mean(name: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    """The nearest known name, also where only case or white space differ."""
    plain = {candidate.strip().casefold(): candidate for candidate in list(known)[:1000]}
    near = difflib.get_close_matches(name.strip().casefold()[:256], plain, n=1)
    if near:
        return f'; did you mean "{plain[near[0]][:60]}"?'
    shown = ", ".join(candidate[:60] for candidate in list(known)[:10])
    return f"; it has {shown}" if shown else ""


def check_rows(path: Path, format: TrainFormat, columns: Mapping[str, str]) -> None:
    """Check every row of a normalised file for `format` under a mapping. Raises UploadRefused with the lines."""
    if format not in get_args(TrainFormat):
        raise FormatError("unknown_format", f'"{format}" is no format; {_needs()}')
    problems = Problems()
    for row in read_rows(path):
        try:
            to_example(format, columns, row.value)
        except RowFault as fault:
            problems.add(fault, row.line)
    if problems.n:
        problems.refuse()
