"""The formats' own field names, and recognising a row's format by them.

Pure: standard library only. Values are looked at only where two formats share their names.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from trainer_core.data.labels import MAX_LABEL_LENGTH
from trainer_core.data.report import DatasetFormat, TrainFormat


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
    "feedback": Fields(("prompt", "completion", "label"), ("system",)),
    "prompt_completion": Fields(("prompt", "completion"), ("system",)),
    "instruction": Fields(("instruction", "output"), ("input", "system")),
    "preference": Fields(("chosen", "rejected"), ("prompt", "system", "tools", "margin")),
    "token_classification": Fields(("tokens", "tags")),
    "classification": Fields(("text", "label"), ("text_pair",)),
    "text": Fields(("text",)),
    "prompts": Fields(("prompt",), ("messages", "system", "tools")),
}
ALL_FIELDS = tuple(dict.fromkeys(name for fields in FIELDS.values() for name in fields.all))
# OpenAI's names of a preference's two replies, each pair beside `input`.
OPENAI_REPLIES = (("preferred_output", "non_preferred_output"), ("preferred_completion", "non_preferred_completion"))
# Formats with more than one set of columns of which a row must have one.
_SPELLINGS: dict[TrainFormat, tuple[tuple[str, ...], ...]] = {
    "messages": (("messages",), ("conversations",)),
    "preference": (("chosen", "rejected"), *(("input", *pair) for pair in OPENAI_REPLIES)),
    "prompts": (("prompt",), ("messages",), ("conversations",)),
}
# Beside messages that end with the user these columns are part of the conversation, not something to grade by.
_OF_CONVERSATION = frozenset(("messages", "conversations", "tools", "functions", "system", "parallel_tool_calls"))


def recognise(row: Mapping[str, Any]) -> DatasetFormat:
    """The format whose required columns the row has, by the formats' own names; `columns` if none.

    Tables written as JSON hold every column in every row, null where it does not apply: columns that are all null count
    only if nothing else fits.
    """
    if asks(row):
        return "prompts"
    fitting: list[TrainFormat] = [name for name in FIELDS if has_fields(name, row) and _looks_like(name, row)]
    filled = (
        name
        for name in fitting
        if any(row.get(field) is not None for spelling in spellings(name) for field in spelling)
    )
    return next(filled, next(iter(fitting), "columns"))


def has_fields(format: TrainFormat, row: Container[str]) -> bool:
    """Whether a row has the columns that `format` cannot do without."""
    return any(all(name in row for name in spelling) for spelling in spellings(format))


def spellings(format: TrainFormat) -> tuple[tuple[str, ...], ...]:
    """The sets of columns of which `format` needs one."""
    return _SPELLINGS.get(format, (FIELDS[format].required,))


def needs(format: TrainFormat) -> str:
    """What a format needs, in words."""
    if format == "preference":
        return "preference needs chosen and rejected, and prompt unless they are whole conversations"
    return f"{format} needs {' and '.join(FIELDS[format].required)}"


def asks(row: Mapping[str, Any]) -> bool:
    """Whether a conversation ends with the user beside something to grade an answer by: a prompt, not a cut row."""
    if row.get("prompt") is not None:
        return False
    turns = next((row[name] for name in ("messages", "conversations") if row.get(name) is not None), None)
    last = turns[-1] if isinstance(turns, list) and turns else None
    if not isinstance(last, dict) or last.get("role", last.get("from")) not in ("user", "human"):
        return False
    return any(value is not None for name, value in row.items() if name not in _OF_CONVERSATION)


def _looks_like(format: TrainFormat, row: Mapping[str, Any]) -> bool:
    """For formats whose names other files use as well: whether the values are of their kind."""
    if format == "feedback":
        return isinstance(row["label"], bool)
    if format == "preference":
        return _looks_like_preference(row)
    if format == "token_classification":
        return isinstance(row["tokens"], list) and isinstance(row["tags"], list)
    if format == "classification":
        return _looks_like_label(row["label"])
    if format == "prompts":
        return isinstance(row.get("prompt"), str | list)
    return True


def _looks_like_preference(row: Mapping[str, Any]) -> bool:
    if row.get("chosen") is not None and row.get("rejected") is not None:
        return row.get("prompt") is not None or all(isinstance(row[name], list) for name in ("chosen", "rejected"))
    return any(row.get(good) is not None and row.get(bad) is not None for good, bad in OPENAI_REPLIES)


def _looks_like_label(label: object) -> bool:
    """A long text or a list of numbers beside a text is something else, and the row stays text."""
    if isinstance(label, str):
        return len(label) <= MAX_LABEL_LENGTH
    if isinstance(label, list):
        return all(isinstance(item, str) for item in label)
    return isinstance(label, int | float)
