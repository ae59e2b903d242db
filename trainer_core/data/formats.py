"""Turning a row of each dataset format into an example, and checking a whole file for one format.

Pure: standard library and pydantic only. Extra columns are never looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, overload

from trainer_core.data.chat_rules import to_chat, to_prompt
from trainer_core.data.columns import MISSING, value_at
from trainer_core.data.decode import json_type
from trainer_core.data.examples import (
    AnyExample,
    ChatExample,
    Example,
    FeedbackExample,
    LabelExample,
    PreferenceExample,
    PromptExample,
    PromptOnly,
    TextExample,
    TokensExample,
)
from trainer_core.data.fields import FIELDS, OPENAI_REPLIES, has_fields, recognise
from trainer_core.data.labels import read_label, read_tags
from trainer_core.data.mapping import METHOD_FORMATS, check_columns, did_you_mean, format_for, formats_of, needs_of
from trainer_core.data.preference_rules import Pair, openai_pair, to_preference
from trainer_core.data.problems import FormatError, Problems, RowFault
from trainer_core.data.report import SftFormat, TrainFormat
from trainer_core.data.stored import read_rows
from trainer_core.data.tool_rules import normalise_tools

__all__ = [
    "FIELDS", "METHOD_FORMATS", "AnyExample", "ChatExample", "Example", "FeedbackExample", "FormatError",
    "LabelExample", "PreferenceExample", "PromptExample", "PromptOnly", "RowFault", "TextExample", "TokensExample",
    "TrainFormat", "check_columns", "check_rows", "format_for", "formats_of", "has_fields", "recognise", "to_example",
]  # fmt: skip


@overload
def to_example(format: SftFormat, columns_mapping: Mapping[str, str], row: Mapping[str, Any]) -> Example: ...
@overload
def to_example(format: TrainFormat, columns_mapping: Mapping[str, str], row: Mapping[str, Any]) -> AnyExample: ...
def to_example(format: TrainFormat, columns_mapping: Mapping[str, str], row: Mapping[str, Any]) -> AnyExample:
    """Turn one row into what is trained on. Raises RowFault, with the column as the file names it."""
    return _READERS[format](columns_mapping, row)


def _chat_example(mapping: Mapping[str, str], row: Mapping[str, Any]) -> ChatExample:
    column = mapping.get("messages") or _turns_column(row)
    turns = value_at(row, column)
    if turns is MISSING:
        raise _missing(column, row)
    is_sharegpt = column == "conversations"
    # A bare `system` column belongs to ShareGPT files; beside `messages` it is one of the extra columns.
    system = _system(mapping, row) if is_sharegpt or "system" in mapping else None
    return to_chat(turns, _tools(mapping, row), system, column)


def _turns_column(row: Mapping[str, Any]) -> str:
    """`conversations` only where there is one and no `messages`."""
    has_turns = row.get("messages") is None and row.get("conversations") is not None
    return "conversations" if has_turns else "messages"


def _tools(mapping: Mapping[str, str], row: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    column = mapping.get("tools", "tools")
    tools = normalise_tools(_optional(column, row), column)
    if tools is None and "tools" not in mapping and row.get("functions") is not None:
        return normalise_tools(row["functions"], "functions")
    return tools


def _prompt_completion(mapping: Mapping[str, str], row: Mapping[str, Any]) -> PromptExample:
    prompt = _text("prompt", mapping, row)
    return PromptExample(prompt, _reply("completion", mapping, row), _system(mapping, row))


def _instruction(mapping: Mapping[str, str], row: Mapping[str, Any]) -> PromptExample:
    prompt = _text("instruction", mapping, row)
    more = _text("input", mapping, row, is_optional=True)
    if more.strip():
        prompt = f"{prompt}\n{more}" if prompt.strip() else more
    return PromptExample(prompt, _reply("output", mapping, row), _system(mapping, row))


def _text_example(mapping: Mapping[str, str], row: Mapping[str, Any]) -> TextExample:
    return TextExample(_filled_text("text", mapping, row, "empty_text"))


def _preference(mapping: Mapping[str, str], row: Mapping[str, Any]) -> PreferenceExample:
    openai = None if {"chosen", "rejected", "prompt"} & set(mapping) else _openai_replies(row)
    if openai is None:
        prompt, chosen, rejected = (mapping.get(name, name) for name in ("prompt", "chosen", "rejected"))
        values = _optional(prompt, row), _required(chosen, row), _required(rejected, row)
        tools = _tools(mapping, row)
    else:
        prompt, chosen, rejected = "input.messages", *openai
        messages, tools_value = openai_pair(dict(row), ("input", *openai))
        values = messages, row[chosen], row[rejected]
        tools = normalise_tools(tools_value, "input.tools")
    example = to_preference(Pair(*values, _system(mapping, row), tools, (prompt, chosen, rejected)))
    return replace(example, margin=_optional(mapping.get("margin", "margin"), row))


def _openai_replies(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """The names that the row uses of OpenAI's shape; None where it has chosen and rejected, or neither."""
    if row.get("chosen") is not None and row.get("rejected") is not None:
        return None
    return next((pair for pair in OPENAI_REPLIES if "input" in row and pair[0] in row and pair[1] in row), None)


def _feedback(mapping: Mapping[str, str], row: Mapping[str, Any]) -> FeedbackExample:
    column = mapping.get("label", "label")
    prompt = _text("prompt", mapping, row)
    completion = _reply("completion", mapping, row)
    label = _required(column, row)
    if not isinstance(label, bool) and not (isinstance(label, int) and label in (0, 1)):
        found = f'the text "{label[:20]}"' if isinstance(label, str) else json_type(label)
        raise RowFault("label_not_boolean", f"expected true or false (or 1 or 0), found {found}", column)
    return FeedbackExample(prompt, completion, bool(label), _system(mapping, row))


def _label(mapping: Mapping[str, str], row: Mapping[str, Any]) -> LabelExample:
    column, pair_column = mapping.get("label", "label"), mapping.get("text_pair", "text_pair")
    text = _filled_text("text", mapping, row, "empty_text")
    pair = None if _optional(pair_column, row) is None else _text("text_pair", mapping, row)
    return LabelExample(text, pair, read_label(_required(column, row), column))


def _tokens(mapping: Mapping[str, str], row: Mapping[str, Any]) -> TokensExample:
    column, tags_column = mapping.get("tokens", "tokens"), mapping.get("tags", "tags")
    tokens = _required(column, row)
    if not isinstance(tokens, list):
        raise RowFault("bad_tokens", f"expected a list of strings, found {json_type(tokens)}", column)
    if not tokens:
        raise RowFault("empty_text", "the list of tokens is empty; leave the row out", column)
    for index, token in enumerate(tokens):
        if not isinstance(token, str):
            raise RowFault("bad_tokens", f"expected a string, found {json_type(token)}", f"{column}[{index}]")
        if not token.strip():
            raise RowFault("empty_token", "the token is empty; leave it and its tag out", f"{column}[{index}]")
    return TokensExample(tuple(tokens), read_tags(_required(tags_column, row), len(tokens), tags_column))


def _prompt_only(mapping: Mapping[str, str], row: Mapping[str, Any]) -> PromptOnly:
    column = mapping.get("prompt") or mapping.get("messages")
    if column is None:
        column = "prompt" if row.get("prompt") is not None else _turns_column(row)
        column = column if column in row else "prompt"
    prompt, tools = _required(column, row), _tools(mapping, row)
    # As in conversations, a bare `system` column beside `messages` is one of the extra columns.
    system = None if column == "messages" and "system" not in mapping else _system(mapping, row)
    if isinstance(prompt, list):
        return PromptOnly(to_prompt(prompt, system, column), None, dict(row), tools)
    if not isinstance(prompt, str):
        message = f"expected a string or a list of messages, found {json_type(prompt)}"
        raise RowFault("not_string", message, column)
    if not prompt.strip():
        raise RowFault("empty_prompt", "the prompt is empty; there is nothing to answer", column)
    return PromptOnly(prompt, system, dict(row), tools)


_READERS: dict[TrainFormat, Callable[[Mapping[str, str], Mapping[str, Any]], AnyExample]] = {
    "messages": _chat_example,
    "prompt_completion": _prompt_completion,
    "instruction": _instruction,
    "text": _text_example,
    "preference": _preference,
    "feedback": _feedback,
    "classification": _label,
    "token_classification": _tokens,
    "prompts": _prompt_only,
}


# ---------------------------------------------------------------------------------------------------------------------
# One field
# ---------------------------------------------------------------------------------------------------------------------


def _text(name: str, mapping: Mapping[str, str], row: Mapping[str, Any], *, is_optional: bool = False) -> str:
    column = mapping.get(name, name)
    value = _optional(column, row) if is_optional else _required(column, row)
    if isinstance(value, str):
        return value
    if value is None and is_optional:
        return ""
    raise RowFault("not_string", f"expected a string, found {json_type(value)}", column)


def _filled_text(name: str, mapping: Mapping[str, str], row: Mapping[str, Any], code: str) -> str:
    text = _text(name, mapping, row)
    if not text.strip():
        raise RowFault(code, f"the {name} is empty; leave the row out", mapping.get(name, name))
    return text


def _reply(name: str, mapping: Mapping[str, str], row: Mapping[str, Any]) -> str:
    column = mapping.get(name, name)
    value = _required(column, row)
    if not isinstance(value, str):
        raise RowFault("reply_not_string", f"expected a string, found {json_type(value)}", column)
    if not value.strip():
        raise RowFault("empty_reply", "the reply is empty; there is nothing to learn from it", column)
    return value


def _system(mapping: Mapping[str, str], row: Mapping[str, Any]) -> str | None:
    text = _text("system", mapping, row, is_optional=True)
    return text if text.strip() else None


def _required(column: str, row: Mapping[str, Any]) -> Any:
    value = value_at(row, column)
    if value is MISSING:
        raise _missing(column, row)
    return value


def _optional(column: str, row: Mapping[str, Any]) -> Any:
    value = value_at(row, column)
    return None if value is MISSING else value


def _missing(column: str, row: Mapping[str, Any]) -> RowFault:
    return RowFault("missing_field", f'the row has no "{column}"{did_you_mean(column, row)}', column)


def check_rows(path: Path, format: TrainFormat, columns: Mapping[str, str]) -> None:
    """Check every row of a normalised file for `format` under a mapping. Raises UploadRefused with the lines."""
    if format not in get_args(TrainFormat):
        raise FormatError("unknown_format", f'"{format}" is no format; {needs_of(FIELDS)}')
    problems = Problems()
    for row in read_rows(path):
        try:
            to_example(format, columns, row.value)
        except RowFault as fault:
            problems.add(fault, row.line)
    if problems.n:
        problems.refuse()
