"""Which formats a dataset can serve, which a method trains on, and a job's own names for the columns.

Pure: standard library and pydantic only. Decides by a dataset's report; rows are checked by `formats.check_rows`.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from trainer_core.data.columns import types_at
from trainer_core.data.fields import ALL_FIELDS, FIELDS, has_fields, needs
from trainer_core.data.problems import FormatError
from trainer_core.data.report import DatasetReport, TrainFormat

# What each method trains on (or predicts, or evaluates), in order of precedence.
METHOD_FORMATS: dict[str, tuple[TrainFormat, ...]] = {
    "sft": ("messages", "prompt_completion", "instruction", "text"),
    "pretrain": ("text",),
    "seq2seq": ("prompt_completion",),
    "classification": ("classification",),
    "token_classification": ("token_classification",),
    "preference": ("preference",),
    "reward": ("preference",),
    "rl": ("prompts",),
    "predict": ("prompts",),
    "evaluate": tuple(name for name in FIELDS if name != "prompts"),
}
# The JSON types that a field of these formats may hold; what others hold is told row by row.
_TYPES: dict[TrainFormat, dict[str, frozenset[str]]] = {
    "feedback": {"label": frozenset(("boolean", "number"))},
    "preference": {name: frozenset(("string", "array", "object")) for name in ("chosen", "rejected")},
    "token_classification": {name: frozenset(("array",)) for name in ("tokens", "tags")},
    "classification": {"label": frozenset(("string", "number", "boolean", "array"))},
    "prompts": {"prompt": frozenset(("string", "array"))},
}
_Types = Mapping[str, Collection[str]]


def formats_of(report: DatasetReport) -> list[TrainFormat]:
    """The formats that the dataset's own column names can serve: the recognised one, then by precedence."""
    names = sorted(FIELDS, key=lambda name: name != report.format)
    return [name for name in names if _obstacle(name, report, {}) is None]


def check_columns(report: DatasetReport, columns: Mapping[str, str]) -> TrainFormat:
    """The format that supervised fine-tuning reads this dataset in, given a column mapping. Raises FormatError."""
    return format_for("sft", report, columns)


def format_for(
    method: str, report: DatasetReport, columns: Mapping[str, str], among: tuple[TrainFormat, ...] | None = None
) -> TrainFormat:
    """The format a method reads this dataset in: of its own ones, or of `among`, the one recognised or else the first.

    Raises FormatError, which says what the method needs and what the file has.
    """
    if method not in METHOD_FORMATS:
        raise FormatError("unknown_method", f'there is no method "{method}"{did_you_mean(method, METHOD_FORMATS)}')
    formats = METHOD_FORMATS[method] if among is None else among
    _check_mapping(report, columns)
    candidates = [name for name in formats if set(columns) <= set(FIELDS[name].all)]
    candidates.sort(key=lambda name: name != report.format)  # stable: what was recognised comes first
    if not candidates:
        names = ", ".join(columns)
        message = f"no format of {method} has all of the fields {names}; {needs_of(formats)}"
        raise FormatError("mixed_fields", message, next(iter(columns)))
    obstacles = [_obstacle(name, report, columns) for name in candidates]
    if None in obstacles:
        return candidates[obstacles.index(None)]
    raise _unfit(method, report, columns, candidates, [obstacle for obstacle in obstacles if obstacle])


def _check_mapping(report: DatasetReport, columns: Mapping[str, str]) -> None:
    for name, column in columns.items():
        if name not in ALL_FIELDS:
            raise FormatError("unknown_field", f'no format has a field "{name}"{did_you_mean(name, ALL_FIELDS)}', name)
        if types_at(report.columns, column) is None:
            message = f'the dataset has no column "{column}"{did_you_mean(column, report.columns)}'
            head = column.split(".", 1)[0]
            if head != column and head in report.columns:
                held = " and ".join(report.columns[head])
                message = f'"{column}" looks into objects, and the column "{head}" holds {held}'
            raise FormatError("missing_column", message, name)
    if len(set(columns.values())) < len(columns):
        raise FormatError("column_twice", "one column is mapped to two fields", next(iter(columns)))


def _obstacle(format: TrainFormat, report: DatasetReport, columns: Mapping[str, str]) -> FormatError | None:
    """What keeps the dataset from being read in `format` under the mapping, as far as its report tells."""
    fields: _Types = {**report.columns, **{name: types_at(report.columns, col) or () for name, col in columns.items()}}
    if not has_fields(format, fields) or _is_other_conversation(format, report, columns):
        return _lacking(format, report, columns)
    if format == "preference" and not _has_prompt(fields):
        message = f"{needs(format)}; the file has no prompt: its columns are {_names(report)}"
        return FormatError("missing_column", message, "prompt")
    for name, allowed in _TYPES.get(format, {}).items():
        unfit = sorted(set(fields.get(name, ())) - allowed)
        if unfit and not (format == report.format == "prompts" and "prompt" not in columns):
            column = columns.get(name, name)
            message = f'{format} needs {" or ".join(sorted(allowed))} as {name}; "{column}" holds {" and ".join(unfit)}'
            return FormatError("column_type", message, name)
    return None


def _is_other_conversation(format: TrainFormat, report: DatasetReport, columns: Mapping[str, str]) -> bool:
    """Conversations that end with the user cannot be learnt, and those that do not are no prompts."""
    if format == "messages":
        return report.format == "prompts" and "messages" not in columns
    is_prompt = "prompt" in report.columns or "prompt" in columns or "messages" in columns
    return format == "prompts" and report.format != "prompts" and not is_prompt


def _has_prompt(fields: _Types) -> bool:
    if "chosen" not in fields or "rejected" not in fields:
        return True  # OpenAI's shape holds it in `input`
    return "prompt" in fields or not any("string" in fields[name] for name in ("chosen", "rejected"))


def _lacking(format: TrainFormat, report: DatasetReport, columns: Mapping[str, str]) -> FormatError:
    missing = [name for name in FIELDS[format].required if name not in columns and name not in report.columns]
    if not missing:  # conversations that end the other way
        end = "the user" if format == "messages" else "the assistant"
        return FormatError("missing_column", f"{needs(format)}; the conversations of this file end with {end}")
    return FormatError(
        "missing_column",
        f"{format} needs {' and '.join(missing)} too: map {'it' if len(missing) == 1 else 'them'} to one of "
        f"{_names(report)}",
        missing[0],
    )


def _unfit(
    method: str, report: DatasetReport, columns: Mapping[str, str], candidates: list[TrainFormat],
    obstacles: list[FormatError],
) -> FormatError:  # fmt: skip
    """The most telling of the obstacles: with a mapping the first one, else one that names a column the file has."""
    if columns:
        return obstacles[0]
    near = next((obstacle for obstacle in obstacles if obstacle.code == "column_type"), None)
    if near is not None:
        return near
    known = "which are no known format" if report.format == "columns" else f"which are read as {report.format}"
    message = f"the file has the columns {_names(report)}, {known}; say which is which: {needs_of(candidates)}"
    return FormatError("columns_needed", f"{method}: {message}" if method != "sft" else message)


def needs_of(formats: Iterable[TrainFormat]) -> str:
    """What each format needs, in words."""
    return "; ".join(needs(name) for name in formats)


def _names(report: DatasetReport) -> str:
    names = list(report.columns)
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")


def did_you_mean(name: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    """The nearest known name, also where only case or white space differ."""
    plain = {candidate.strip().casefold(): candidate for candidate in list(known)[:1000]}
    near = difflib.get_close_matches(name.strip().casefold()[:256], plain, n=1)
    if near:
        return f'; did you mean "{plain[near[0]][:60]}"?'
    shown = ", ".join(candidate[:60] for candidate in list(known)[:10])
    return f"; it has {shown}" if shown else ""
