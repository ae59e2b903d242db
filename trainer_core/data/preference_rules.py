"""Preferences: two replies to one prompt, in the many shapes that they are sent in, turned into one.

Pure: standard library only. The rules are written out for people in docs/datasets.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainer_core.data.chat_rules import read_turns, to_prompt
from trainer_core.data.columns import MISSING
from trainer_core.data.decode import json_type
from trainer_core.data.examples import Messages, PreferenceExample
from trainer_core.data.problems import RowFault


@dataclass(frozen=True)
class Pair:
    """A row's values with the columns they stand in. `prompt` is None where there is none."""

    prompt: Any
    chosen: Any
    rejected: Any
    system: str | None
    tools: list[dict[str, Any]] | None
    columns: tuple[str, str, str]


def to_preference(pair: Pair) -> PreferenceExample:
    """Check a pair and put it into canonical form. Raises RowFault."""
    prompt_column, chosen_column, rejected_column = pair.columns
    replies = [_reply(pair.chosen, chosen_column), _reply(pair.rejected, rejected_column)]
    if any(isinstance(reply, list) for reply in replies) or isinstance(pair.prompt, list):
        example = _of_messages(pair, replies)
    elif isinstance(pair.prompt, str):
        example = PreferenceExample(pair.prompt, replies[0], replies[1], pair.system, pair.tools)
    else:
        raise _bad_prompt(pair.prompt, prompt_column)
    if example.chosen == example.rejected:
        raise RowFault("chosen_is_rejected", "both replies are the same; there is nothing to prefer", rejected_column)
    return example


def _reply(value: object, column: str) -> Any:
    """A text, or a list of messages; a message on its own is a list of one."""
    if isinstance(value, dict):
        return [value]
    if isinstance(value, list):
        if not value:
            raise RowFault("empty_reply", "the reply is empty; there is nothing to learn from it", column)
        return value
    if not isinstance(value, str):
        raise RowFault("reply_not_string", f"expected a string or a list of messages, found {json_type(value)}", column)
    if not value.strip():
        raise RowFault("empty_reply", "the reply is empty; there is nothing to learn from it", column)
    return value


def _bad_prompt(prompt: object, column: str) -> RowFault:
    if prompt is None:
        message = "there is no prompt, and the replies are no whole conversations that share one"
        return RowFault("missing_field", message, column)
    return RowFault("not_string", f"expected a string or a list of messages, found {json_type(prompt)}", column)


def _of_messages(pair: Pair, replies: list[Any]) -> PreferenceExample:
    prompt_column, *reply_columns = pair.columns
    turns = [[{"role": "assistant", "content": reply}] if isinstance(reply, str) else reply for reply in replies]
    are_whole = [_starts_before_reply(reply) for reply in turns]
    if all(are_whole):
        return _split(pair, turns)
    if pair.prompt is None or any(are_whole):
        # One whole conversation beside one reply: the reply has no place of its own.
        column = prompt_column if pair.prompt is None else reply_columns[are_whole.index(True)]
        message = "send a prompt with two replies of the assistant, or two whole conversations"
        raise RowFault("no_shared_prompt", message, column)
    prompt = _prompt_messages(pair)
    chosen, rejected = (
        _checked(read_turns(reply, column, prompt)[0], column)
        for reply, column in zip(turns, reply_columns, strict=True)
    )
    return PreferenceExample(prompt, chosen, rejected, None, pair.tools)


def _starts_before_reply(turns: list[Any]) -> bool:
    first = turns[0]
    return isinstance(first, dict) and first.get("role", first.get("from")) in ("user", "human", "system", "developer")


def _prompt_messages(pair: Pair) -> Messages:
    turns = [{"role": "user", "content": pair.prompt}] if isinstance(pair.prompt, str) else pair.prompt
    if not isinstance(turns, list):
        raise _bad_prompt(pair.prompt, pair.columns[0])
    return to_prompt(turns, pair.system, pair.columns[0])


def _checked(reply: list[dict[str, Any]], column: str) -> Messages:
    """A reply's messages, which go on from the prompt: the first and the last are the assistant's."""
    if not reply or reply[-1]["role"] != "assistant":
        raise RowFault("ends_without_reply", "the last message must be the assistant's", column)
    return tuple(reply)


def _split(pair: Pair, turns: list[list[Any]]) -> PreferenceExample:
    """Two whole conversations: what they share, up to the assistant's first reply that differs, is the prompt."""
    prompt_column, chosen_column, rejected_column = pair.columns
    before: Messages = () if pair.system is None else ({"role": "system", "content": pair.system},)
    chosen = [*before, *_checked(read_turns(turns[0], chosen_column, before)[0], chosen_column)]
    rejected = [*before, *_checked(read_turns(turns[1], rejected_column, before)[0], rejected_column)]
    if chosen == rejected:
        raise RowFault("chosen_is_rejected", "both replies are the same; there is nothing to prefer", rejected_column)
    n = next((i for i, (a, b) in enumerate(zip(chosen, rejected, strict=False)) if a != b), len(chosen))
    if any(n >= len(side) or side[n]["role"] != "assistant" for side in (chosen, rejected)):
        message = "the two conversations must be the same up to a reply of the assistant, and differ from there"
        raise RowFault("no_shared_prompt", message, rejected_column)
    prompt = tuple(chosen[:n])
    if pair.prompt is not None and _prompt_messages(pair) != prompt:
        message = "the prompt is not what both conversations begin with; leave it out, or send replies alone"
        raise RowFault("no_shared_prompt", message, prompt_column)
    return PreferenceExample(prompt, tuple(chosen[n:]), tuple(rejected[n:]), None, pair.tools)


def openai_pair(row: dict[str, Any], names: tuple[str, str, str]) -> tuple[Any, Any]:
    """OpenAI's `input` object: its messages, and its tools or None. Raises RowFault."""
    value = row.get(names[0], MISSING)
    if not isinstance(value, dict) or "messages" not in value:
        found = "nothing" if value is MISSING else json_type(value)
        raise RowFault("bad_input", f"expected an object with messages, found {found}", names[0])
    return value["messages"], value.get("tools")
