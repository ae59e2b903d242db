"""Conversations: the written rules of docs/datasets.md, one test row for each line of its tables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from trainer_core.data.chat_rules import ROLES, SHAREGPT_ROLES
from trainer_core.data.formats import ChatExample, RowFault, to_example
from trainer_core.data.rows import UploadRefused, normalise

DOCS = Path(__file__).resolve().parents[3] / "docs" / "datasets.md"
CALL = {"type": "function", "function": {"name": "f", "arguments": "{}"}}


def turn(role: str, content: object = "x", **more: object) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def chat(*messages: dict[str, Any], **more: object) -> ChatExample:
    example = to_example("messages", {}, {"messages": list(messages), **more})
    assert isinstance(example, ChatExample)
    assert any(example.learnt)
    assert all(isinstance(message["content"], str) for message in example.messages)
    return example


def fault(*messages: object, **more: object) -> tuple[str, str | None]:
    with pytest.raises(RowFault) as caught:
        to_example("messages", {}, {"messages": list(messages), **more})
    assert caught.value.code in documented_codes(), "every code is in the documentation"
    return caught.value.code, caught.value.field


def documented_codes() -> set[str]:
    return set(re.findall(r"`([a-z0-9_]+)`", DOCS.read_text()))


# Roles are written short: s u a t, and c for an assistant's message with tool calls.
SHORT = {
    "s": turn("system"), "d": turn("developer"), "u": turn("user"), "a": turn("assistant"), "t": turn("tool"),
    "f": turn("function"), "c": {"role": "assistant", "tool_calls": [CALL]},
}  # fmt: skip


@pytest.mark.parametrize(
    "roles", ["ua", "sua", "dua", "sa", "a", "aua", "uaua", "uc", "ucta", "ucttcta", "ucfa", "ucua"]
)
def test_orders_that_are_accepted(roles: str) -> None:
    example = chat(*(SHORT[role] for role in roles))
    assert [message["role"][0] for message in example.messages] == [
        {"d": "s", "c": "a", "f": "t"}.get(role, role) for role in roles
    ]
    assert example.learnt == tuple(role in "ac" for role in roles)


@pytest.mark.parametrize(
    ("roles", "code", "field"),
    [
        ("aa", "role_order", "messages[1]"),
        ("uaa", "role_order", "messages[2]"),
        ("uca", "role_order", "messages[2]"),
        ("uauu", "role_order", "messages[3]"),
        ("uua", "role_order", "messages[1]"),
        ("usa", "system_not_first", "messages[1]"),
        ("ssua", "system_not_first", "messages[1]"),
        ("sdua", "system_not_first", "messages[1]"),
        ("ta", "role_order", "messages[0]"),
        ("sta", "role_order", "messages[1]"),
        ("uta", "role_order", "messages[1]"),
        ("uata", "role_order", "messages[2]"),
        ("uctua", "role_order", "messages[3]"),
        ("uau", "ends_without_reply", "messages"),
        ("uct", "ends_without_reply", "messages"),
        ("u", "no_assistant_turn", "messages"),
        ("su", "no_assistant_turn", "messages"),
        ("s", "no_assistant_turn", "messages"),
    ],
)
def test_orders_that_are_refused(roles: str, code: str, field: str) -> None:
    assert fault(*(SHORT[role] for role in roles)) == (code, field)


@pytest.mark.parametrize("role", ["bot", "Assistant ", "USER", "", None, 3, ["user"]])
def test_unknown_roles_are_refused(role: object) -> None:
    assert fault(turn("user"), {"role": role, "content": "x"}) == ("unknown_role", "messages[1].role")


def test_the_nearest_role_is_named() -> None:
    with pytest.raises(RowFault, match='did you mean "assistant"'):
        chat(turn("user"), turn("Assistant "))


@pytest.mark.parametrize(
    ("message", "code", "field"),
    [
        (turn("assistant", ""), "empty_reply", "content"),
        (turn("assistant", " \n"), "empty_reply", "content"),
        (turn("assistant", [{"type": "text", "text": " "}]), "empty_reply", "content"),
        (turn("assistant", "", tool_calls=[]), "empty_reply", "content"),
        (turn("assistant", None), "reply_not_string", "content"),
        ({"role": "assistant"}, "reply_not_string", "content"),
        (turn("assistant", 4), "reply_not_string", "content"),
        (turn("assistant", {"a": 1}), "reply_not_string", "content"),
        (turn("assistant", ["x"]), "reply_not_string", "content[0]"),
        (turn("assistant", [{"type": "text"}]), "reply_not_string", "content[0].text"),
        (turn("assistant", [{"type": "refusal", "refusal": "x"}]), "unsupported_content", "content[0]"),
        (turn("assistant", 4, tool_calls=[CALL]), "reply_not_string", "content"),
        (turn("assistant", weight=2), "bad_weight", "weight"),
        (turn("assistant", weight=True), "bad_weight", "weight"),
        (turn("assistant", weight=0.5), "bad_weight", "weight"),
        (turn("assistant", weight="1"), "bad_weight", "weight"),
        (turn("assistant", name=3), "not_string", "name"),
        (turn("assistant", tool_calls={}), "bad_tool_call", "tool_calls"),
        (turn("assistant", tool_calls=["x"]), "bad_tool_call", "tool_calls[0]"),
        (turn("assistant", tool_calls=[{"type": "web"}]), "bad_tool_call", "tool_calls[0].type"),
        (turn("assistant", tool_calls=[{"function": {}}]), "bad_tool_call", "tool_calls[0].function"),
        (turn("assistant", tool_calls=[{"id": 1, **CALL}]), "bad_tool_call", "tool_calls[0].id"),
        (turn("assistant", function_call="f"), "bad_tool_call", "function_call"),
    ],
)
def test_bad_assistant_messages(message: dict[str, Any], code: str, field: str) -> None:
    assert fault(turn("user"), message) == (code, f"messages[1].{field}")


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


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (turn("user", None), "messages[0].content"),
        ({"role": "user"}, "messages[0].content"),
        (turn("user", {"a": 1}), "messages[0].content"),
        (turn("system", 3), "messages[0].content"),
    ],
)
def test_other_messages_need_text(message: dict[str, Any], field: str) -> None:
    assert fault(message, turn("assistant")) == ("content_not_string", field)


def test_other_bad_messages() -> None:
    picture = [{"type": "image_url", "image_url": {"url": "x"}}]
    assert fault(turn("user", picture), turn("assistant")) == ("unsupported_content", "messages[0].content[0]")
    assert fault(turn("user", tool_calls=[CALL]), turn("assistant")) == ("tool_calls_misplaced", "messages[0]")
    assert fault(turn("user", weight=1), turn("assistant")) == ("bad_weight", "messages[0].weight")
    assert fault(turn("user"), turn("assistant", weight=0)) == ("nothing_learnt", "messages")
    assert fault("hi") == ("message_not_object", "messages[0]")
    called = {"role": "assistant", "tool_calls": [{"id": "1", **CALL}]}
    stray = turn("tool", tool_call_id="2")
    assert fault(turn("user"), called, stray, turn("assistant")) == ("unknown_tool_call_id", "messages[2].tool_call_id")


def test_weights_choose_what_is_learnt() -> None:
    example = chat(turn("user"), turn("assistant", weight=0), turn("user"), turn("assistant", weight=1))
    assert example.learnt == (False, False, False, True)
    assert all("weight" not in message for message in example.messages)


def test_optional_keys_that_are_null_are_absent() -> None:
    nulls = dict.fromkeys(("name", "weight", "tool_calls", "function_call", "tool_call_id", "reasoning_content"))
    example = chat(turn("user", "u", **nulls), turn("assistant", "a", **nulls), tools=None)
    assert example.messages == (turn("user", "u"), turn("assistant", "a"))
    assert (example.tools, example.ignored_keys) == (None, frozenset())


def test_what_templates_may_show_is_passed_on_and_the_rest_is_named() -> None:
    reply = turn("assistant", "a", reasoning_content="why", name="n", refusal=None, audio={})
    example = chat(turn("user", ""), reply)
    assert example.messages[1] == turn("assistant", "a", reasoning_content="why", name="n")
    assert example.ignored_keys == {"refusal", "audio"}


def test_text_parts_are_put_together() -> None:
    parts = [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]
    assert chat(turn("user", parts), turn("assistant", parts)).messages[1] == turn("assistant", "a b")


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


# ---------------------------------------------------------------------------------------------------------------------
# Through a file, and against the documentation
# ---------------------------------------------------------------------------------------------------------------------


def test_a_bad_conversation_is_refused_with_line_and_message(tmp_path: Path) -> None:
    good = {"messages": [turn("user"), turn("assistant")]}
    bad = {"messages": [turn("user"), turn("assistant"), turn("user"), turn("user")]}
    (tmp_path / "x").write_text("\n".join(json.dumps(row) for row in (good, bad, good)))
    with pytest.raises(UploadRefused) as caught:
        normalise(tmp_path / "x", tmp_path / "y")
    problem = caught.value.problems[0]
    assert (problem.code, problem.line, problem.field) == ("role_order", 2, "messages[3]")
    assert "line 2, messages[3]" in caught.value.message


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


def test_ignored_keys_and_tools_are_reported(tmp_path: Path) -> None:
    row = {"messages": [turn("user", mood="x"), turn("assistant")], "tools": [{"name": "f"}]}
    (tmp_path / "x").write_text(json.dumps(row))
    report = normalise(tmp_path / "x", tmp_path / "y")
    assert report.n_rows_with_tools == 1
    assert report.notes == ["keys of messages that are ignored: mood"]


def test_the_documentation_names_every_role() -> None:
    assert set(ROLES) | set(SHAREGPT_ROLES) <= documented_codes()


def test_the_documentation_names_every_code() -> None:
    sources = (Path(__file__).resolve().parents[3] / "trainer_core" / "data").glob("*.py")
    names = (
        "problems",
        "decode",
        "foreign",
        "sources",
        "scan",
        "formats",
        "rows",
        "chat_rules",
        "tool_rules",
        "stored",
    )
    text = "\n".join(path.read_text() for path in sources if path.stem in names)
    codes = set(re.findall(r'(?:RowFault|FormatError|UploadRefused)\(\s*"([a-z0-9_]+)"', text))
    codes |= set(re.findall(r'\("([a-z]+_sent)"', text)) | {"reply_not_string", "content_not_string", "tools_not_json"}
    assert len(codes) > 45
    assert codes - documented_codes() == set()
