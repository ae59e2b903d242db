"""Conversations: the written rules of docs/datasets.md, one test row for each line of its tables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.trainer_core.data.uploads import CALL, chat, documented_codes, fault, turn
from trainer_core.data.chat_rules import ROLES, SHAREGPT_ROLES
from trainer_core.data.formats import RowFault
from trainer_core.data.rows import UploadRefused, normalise

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


def test_ignored_keys_and_tools_are_reported(tmp_path: Path) -> None:
    row = {"messages": [turn("user", mood="x"), turn("assistant")], "tools": [{"name": "f"}]}
    (tmp_path / "x").write_text(json.dumps(row))
    report = normalise(tmp_path / "x", tmp_path / "y")
    assert report.n_rows_with_tools == 1
    assert report.notes == ["keys of messages that are ignored: mood"]


def test_the_documentation_names_every_role() -> None:
    assert set(ROLES) | set(SHAREGPT_ROLES) <= documented_codes()


def test_the_documentation_names_every_code() -> None:
    folder = Path(__file__).resolve().parents[3] / "trainer_core" / "data"
    names = (
        "problems decode foreign sources scan formats rows chat_rules tool_rules stored "
        "fields labels mapping preference_rules tables table_scan"
    )
    text = "\n".join((folder / f"{name}.py").read_text() for name in names.split())
    codes = set(re.findall(r'(?:RowFault|FormatError|UploadRefused)\(\s*"([a-z0-9_]+)"', text))
    codes |= set(re.findall(r'\("([a-z]+_sent)"', text)) | {"reply_not_string", "content_not_string", "tools_not_json"}
    assert len(codes) > 70
    assert codes - documented_codes() == set()
