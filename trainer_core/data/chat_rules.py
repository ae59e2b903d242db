"""Conversations: which roles may follow which, what a message may hold, and what of it is learnt.

Pure: standard library only. The rules are written out for people in docs/datasets.md; a test holds the two together.
"""

from __future__ import annotations

import difflib
from typing import Any

from trainer_core.data.decode import json_type
from trainer_core.data.examples import ChatExample, Messages
from trainer_core.data.problems import RowFault, quoted
from trainer_core.data.tool_rules import normalise_function_call, normalise_tool_calls, parse_written_calls

# The role a template gets for each role in a file. `developer` is OpenAI's newer word for system, `function` the older
# one for tool; few templates know either.
ROLES = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool",
    "function": "tool",
}  # fmt: skip
SHAREGPT_ROLES = {
    "system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant",
    "chatgpt": "assistant", "function_call": "assistant", "observation": "tool", "tool": "tool",
}  # fmt: skip
# What may come before a message of each role; None is the start. A tool's reply also needs calls to reply to.
MAY_FOLLOW: dict[str, tuple[str | None, ...]] = {
    "system": (None,),
    "user": (None, "system", "assistant"),
    "assistant": (None, "system", "user", "tool"),
    "tool": ("assistant", "tool"),
}
# Kept for templates that show them, when they are strings.
_PASSED_ON = ("name", "tool_call_id", "reasoning_content", "thinking")
_KNOWN_KEYS = frozenset(("role", "content", "weight", "tool_calls", "function_call", *_PASSED_ON))
_SHAREGPT_KEYS = frozenset(("from", "value", "weight"))


def to_chat(turns: object, tools: list[dict[str, Any]] | None, system: str | None, field: str) -> ChatExample:
    """Check a conversation in OpenAI's or ShareGPT's spelling and put it into the canonical one. Raises RowFault."""
    before: Messages = () if system is None else ({"role": "system", "content": system},)
    messages, learnt, ignored = read_turns(turns, field, before)
    messages, learnt = [*before, *messages], [False] * len(before) + learnt
    _check_whole(messages, learnt, field)
    return ChatExample(tuple(messages), tools, tuple(learnt), frozenset(ignored))


def to_prompt(turns: object, system: str | None, field: str) -> Messages:
    """A conversation that waits for the assistant, in the canonical spelling. Raises RowFault."""
    before: Messages = () if system is None else ({"role": "system", "content": system},)
    messages = (*before, *read_turns(turns, field, before)[0])
    if not messages or messages[-1]["role"] not in ("user", "tool"):
        found = f"the last message is the {messages[-1]['role']}'s" if messages else "there is no message"
        raise RowFault("ends_with_reply", f"{found}; a prompt ends with the user's", field)
    return messages


def read_turns(turns: object, field: str, before: Messages = ()) -> tuple[list[dict[str, Any]], list[bool], set[str]]:
    """The messages that follow `before`, in canonical form; whether each is learnt; keys that are ignored."""
    if not isinstance(turns, list):
        raise RowFault("messages_not_list", f"expected a list of messages, found {json_type(turns)}", field)
    messages = list(before)
    learnt: list[bool] = []
    ignored: set[str] = set()
    call_ids = {call["id"] for message in before for call in message.get("tool_calls", ()) if "id" in call}
    for index, turn in enumerate(turns):
        place = f"{field}[{index}]"
        message, is_learnt = _message(turn, place)
        ignored.update(turn.keys() - (_SHAREGPT_KEYS if "from" in turn else _KNOWN_KEYS))
        role = message["role"]
        _check_order(messages, role, place)
        if role == "tool" or "tool_calls" in message:
            _check_call_id(message, call_ids, place)
        messages.append(message)
        learnt.append(is_learnt)
    return messages[len(before) :], learnt, ignored


def _message(turn: object, place: str) -> tuple[dict[str, Any], bool]:
    """One message in canonical form, and whether it is learnt."""
    if not isinstance(turn, dict):
        raise RowFault("message_not_object", f"a message must be an object, found {json_type(turn)}", place)
    if "from" in turn and "role" not in turn:
        message = _from_sharegpt(turn, place)
    else:
        message = _from_openai(turn, place)
    is_assistant = message["role"] == "assistant"
    weight = _weight(turn, is_assistant, place)
    return message, is_assistant and weight == 1


def _from_openai(turn: dict[str, Any], place: str) -> dict[str, Any]:
    role = _role(turn.get("role"), ROLES, f"{place}.role")
    calls = normalise_tool_calls(turn.get("tool_calls"), f"{place}.tool_calls")
    if turn.get("function_call") is not None:
        call = normalise_function_call(turn["function_call"], f"{place}.function_call")
        calls.append({"type": "function", "function": call})
    if calls and role != "assistant":
        raise RowFault("tool_calls_misplaced", f"only an assistant calls tools, this message's role is {role}", place)
    message: dict[str, Any] = {"role": role, "content": _content(turn, role, bool(calls), f"{place}.content")}
    if calls:
        message["tool_calls"] = calls
    for key in _PASSED_ON:
        value = turn.get(key)
        if value is not None:
            if not isinstance(value, str):
                raise RowFault("not_string", f"expected a string, found {json_type(value)}", f"{place}.{key}")
            message[key] = value
    return message


def _from_sharegpt(turn: dict[str, Any], place: str) -> dict[str, Any]:
    speaker = turn["from"]
    role = _role(speaker, SHAREGPT_ROLES, f"{place}.from")
    field = f"{place}.value"
    text = text_of(turn.get("value"), "reply_not_string" if role == "assistant" else "content_not_string", field)
    if role == "assistant" and not text.strip():
        raise RowFault("empty_reply", "the reply is empty; there is nothing to learn from it", field)
    if speaker == "function_call":
        return {"role": role, "content": "", "tool_calls": parse_written_calls(text, field)}
    return {"role": role, "content": text}


def _role(value: object, roles: dict[str, str], field: str) -> str:
    if not isinstance(value, str):
        found = "nothing" if value is None else json_type(value)
        raise RowFault("unknown_role", f"expected a role ({', '.join(roles)}), found {found}", field)
    if value in roles:
        return roles[value]
    near = difflib.get_close_matches(value[:50].strip().lower(), roles, n=1)
    advice = f'; did you mean "{near[0]}"?' if near else f"; known are {', '.join(roles)}"
    raise RowFault("unknown_role", f'"{quoted(value, 30)}" is no role{advice}', field)


def _content(turn: dict[str, Any], role: str, has_calls: bool, field: str) -> str:
    """A message's text: a string, or a list of text parts put together; empty only where that makes sense."""
    value = turn.get("content")
    if value is None and has_calls:
        return ""
    text = text_of(value, "reply_not_string" if role == "assistant" else "content_not_string", field)
    if role == "assistant" and not has_calls and not text.strip():
        raise RowFault("empty_reply", "the reply is empty; there is nothing to learn from it", field)
    return text


def text_of(value: object, code: str, field: str) -> str:
    """A string as it is, a list of text parts as one string. Raises RowFault with `code` for anything else."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise RowFault(code, f"expected a string, found {json_type(value)}", field)
    texts: list[str] = []
    for index, part in enumerate(value):
        place = f"{field}[{index}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(part, dict) or not isinstance(kind, str):
            raise RowFault(code, "a list here must hold parts such as {type: text, text: ...}", place)
        if kind != "text":
            raise RowFault(
                "unsupported_content", f'parts of type "{quoted(kind, 30)}" are not supported, only text', place
            )
        if not isinstance(part.get("text"), str):
            raise RowFault(code, f"expected a string, found {json_type(part.get('text'))}", f"{place}.text")
        texts.append(part["text"])
    return "".join(texts)


def _weight(turn: dict[str, Any], is_assistant: bool, place: str) -> int:
    weight = turn.get("weight")
    if weight is None:
        return 1
    if not is_assistant:
        raise RowFault("bad_weight", "only an assistant's message has a weight", f"{place}.weight")
    if type(weight) is not int or weight not in (0, 1):
        raise RowFault("bad_weight", "a weight must be 0 (not learnt) or 1 (learnt)", f"{place}.weight")
    return weight


def _check_order(messages: list[dict[str, Any]], role: str, place: str) -> None:
    before = messages[-1]["role"] if messages else None
    if role == "system" and before is not None:
        raise RowFault("system_not_first", "a system message may only be the first, and only one", place)
    if before not in MAY_FOLLOW[role]:
        after = "at the start" if before is None else f"directly after {before}"
        raise RowFault("role_order", f"{role} {after}: {_order_advice(role, before)}", place)
    if role == "tool" and before == "assistant" and "tool_calls" not in messages[-1]:
        raise RowFault("role_order", "a tool's reply needs an assistant message with tool_calls before it", place)


def _order_advice(role: str, before: str | None) -> str:
    if role == before:
        return "join messages of one speaker into one"
    if role == "tool":
        return "a tool's reply needs an assistant message with tool_calls before it"
    return "the assistant must answer a tool's reply first"


def _check_call_id(message: dict[str, Any], call_ids: set[str], place: str) -> None:
    """A reply that names the call it belongs to must name one that was made. Adds this message's own calls."""
    call_ids.update(call["id"] for call in message.get("tool_calls", ()) if "id" in call)
    wanted = message.get("tool_call_id")
    if message["role"] == "tool" and wanted is not None and call_ids and wanted not in call_ids:
        raise RowFault(
            "unknown_tool_call_id", f'no call before has the id "{quoted(wanted, 30)}"', f"{place}.tool_call_id"
        )


def _check_whole(messages: list[dict[str, Any]], learnt: list[bool], field: str) -> None:
    if not any(message["role"] == "assistant" for message in messages):
        raise RowFault("no_assistant_turn", "no message is the assistant's, so there is nothing to learn", field)
    last = messages[-1]["role"]
    if last != "assistant":
        raise RowFault(
            "ends_without_reply", f"the last message is the {last}'s; end with the assistant's, or leave it out", field
        )
    if not any(learnt):
        raise RowFault("nothing_learnt", "every assistant message has weight 0", field)
