"""Tools, tool calls and ShareGPT rows in their many spellings: one form comes out, or a fault with its field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainer_core.data.uploads import chat, fault, turn
from trainer_core.data.formats import ChatExample, RowFault, to_example
from trainer_core.data.rows import UploadRefused, normalise


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("{", "arguments_not_json"),
        ("not json", "arguments_not_json"),
        ("{} x", "arguments_not_json"),
        ("[1]", "arguments_not_object"),
        ([1], "arguments_not_object"),
        (3, "arguments_not_object"),
        ('{"x": NaN}', "not_finite"),
        ('{"x": 1e999}', "not_finite"),
        ('{"x": "\\ud83d"}', "lone_surrogate"),
        ('{"x": 1, "x": 2}', "duplicate_key"),
        ("[" * 5000, "too_deep"),
        ("9" * 5000, "number_too_long"),
    ],
)
def test_bad_arguments(arguments: object, code: str) -> None:
    call = {"function": {"name": "f", "arguments": arguments}}
    field = "messages[1].tool_calls[0].function.arguments"
    assert fault(turn("user"), {"role": "assistant", "tool_calls": [call]}) == (code, field)


@pytest.mark.parametrize("arguments", ['{"a": {"b": [1, null]}}', {"a": {"b": [1, None]}}])
@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}])
def test_tool_calls_have_one_form(arguments: object, content: dict[str, Any]) -> None:
    function = {"name": "f", "arguments": arguments}
    example = chat(turn("user"), {"role": "assistant", "tool_calls": [{"id": "1", "function": function}], **content})
    assert example.messages[1] == {
        "role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "id": "1", "function": {"name": "f", "arguments": {"a": {"b": [1, None]}}}}
        ],
    }  # fmt: skip


@pytest.mark.parametrize("arguments", ["", " ", None, {}, "{}", "null"])
def test_calls_without_arguments_have_none(arguments: object) -> None:
    example = chat(turn("user"), {"role": "assistant", "tool_calls": [{"name": "f", "arguments": arguments}]})
    assert example.messages[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": {}}


def test_the_older_function_keys_are_read() -> None:
    example = chat(
        turn("user"),
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}},
        {"role": "function", "name": "f", "content": "3"},
        turn("assistant"),
        functions=[{"name": "f", "parameters": {}}],
    )
    assert example.tools == [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    assert example.messages[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}
    assert example.messages[2] == {"role": "tool", "name": "f", "content": "3"}


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        (None, None), ([], None), ("", None), ("[]", None), ("null", None),
        ([{"name": "f"}], [{"type": "function", "function": {"name": "f"}}]),
        ('[{"type":"function","function":{"name":"f","description":null}}]',
         [{"type": "function", "function": {"name": "f"}}]),
    ],
)  # fmt: skip
def test_tools_have_one_form(tools: object, expected: object) -> None:
    assert chat(turn("user"), turn("assistant"), tools=tools).tools == expected


@pytest.mark.parametrize(
    ("tools", "code", "field"),
    [
        ({}, "bad_tools", "tools"),
        (3, "bad_tools", "tools"),
        ("{", "tools_not_json", "tools"),
        ("{}", "bad_tools", "tools"),
        (["f"], "bad_tools", "tools[0]"),
        ([{}], "bad_tools", "tools[0]"),
        ([{"type": "function", "function": {"name": " "}}], "bad_tools", "tools[0]"),
        ([{"type": "web_search", "function": {"name": "f"}}], "bad_tools", "tools[0].type"),
    ],
)
def test_bad_tools(tools: object, code: str, field: str) -> None:
    assert fault(turn("user"), turn("assistant"), tools=tools) == (code, field)


@pytest.mark.parametrize("place", ["arguments", "parameters"])
def test_nan_inside_tools_is_refused(tmp_path: Path, place: str) -> None:
    call = {"function": {"name": "f", "arguments": {"x": float("nan") if place == "arguments" else 0}}}
    tool = {"name": "f", "parameters": {"x": float("inf") if place == "parameters" else 0}}
    row = {"messages": [turn("user"), {"role": "assistant", "tool_calls": [call]}], "tools": [tool]}
    (tmp_path / "x").write_text(json.dumps(row))
    with pytest.raises(UploadRefused) as caught:
        normalise(tmp_path / "x", tmp_path / "y")
    assert caught.value.code == "not_finite"
    assert place in (caught.value.problems[0].field or "")


# ---------------------------------------------------------------------------------------------------------------------
# ShareGPT
# ---------------------------------------------------------------------------------------------------------------------


def said(*turns: tuple[object, object], **more: object) -> dict[str, Any]:
    return {"conversations": [{"from": speaker, "value": value} for speaker, value in turns], **more}


def test_sharegpt_becomes_messages() -> None:
    calls = json.dumps([{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": "{}"}])
    row = said(("human", "u"), ("function_call", calls), ("observation", "3"), ("gpt", "a"), system="s", tools="[]")
    example = to_example("messages", {}, row)
    assert isinstance(example, ChatExample)
    assert [message["role"] for message in example.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert [call["function"] for call in example.messages[2]["tool_calls"]] == [
        {"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}},
    ]  # fmt: skip
    assert example.learnt == (False, False, True, False, True)
    assert example == to_example(
        "messages", {"messages": "chat", "system": "system"}, {**row, "chat": row["conversations"]}
    )


@pytest.mark.parametrize(
    ("row", "code", "field"),
    [
        (said(("human", "u"), ("bing", "a")), "unknown_role", "conversations[1].from"),
        (said(("human", 3), ("gpt", "a")), "content_not_string", "conversations[0].value"),
        (said(("human", "u"), ("gpt", None)), "reply_not_string", "conversations[1].value"),
        (said(("human", "u"), ("gpt", " ")), "empty_reply", "conversations[1].value"),
        (said(("human", "u"), ("function_call", "f(1)")), "arguments_not_json", "conversations[1].value"),
        (said(("human", "u"), ("function_call", "[]")), "empty_reply", "conversations[1].value"),
        (said(("human", "u"), ("function_call", "[{}]")), "bad_tool_call", "conversations[1].value[0]"),
        (said(("system", "s"), ("human", "u"), ("gpt", "a"), system="s"), "system_not_first", "conversations[0]"),
        (said(("human", "u"), ("gpt", "a"), system=3), "not_string", "system"),
    ],
)
def test_bad_sharegpt(row: dict[str, Any], code: str, field: str) -> None:
    with pytest.raises(RowFault) as caught:
        to_example("messages", {}, row)
    assert (caught.value.code, caught.value.field) == (code, field)


def test_a_system_column_beside_messages_is_an_extra_column() -> None:
    messages = [turn("user"), turn("assistant")]
    row = {"messages": messages, "system": "s"}
    plain, mapped = to_example("messages", {}, row), to_example("messages", {"system": "system"}, row)
    assert isinstance(plain, ChatExample)
    assert isinstance(mapped, ChatExample)
    assert list(plain.messages) == messages
    assert list(mapped.messages) == [turn("system", "s"), *messages]
