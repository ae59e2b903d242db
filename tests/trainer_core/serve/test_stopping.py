"""Stop texts across pieces, and tool calls in a reply."""

from __future__ import annotations

import pytest

from trainer_core.serve.stopping import StopText, tool_calls

TOOLS = [{"type": "function", "function": {"name": "weather"}}]


@pytest.mark.parametrize("pieces", [["one END two"], ["one E", "ND two"], ["one ", "E", "N", "D", " two"]])
def test_nothing_of_a_stop_text_is_shown(pieces: list[str]) -> None:
    stop = StopText(["END", "never"])
    assert "".join(stop.take(piece) for piece in pieces) + stop.rest() == "one "
    assert stop.is_stopped


def test_what_only_began_like_one_is_shown_in_the_end() -> None:
    stop = StopText(["END"])
    assert stop.take("one EN") == "one "
    assert stop.take("OUGH") == "ENOUGH"
    assert stop.take("E") == ""
    assert stop.rest() == "E"


def test_calls_are_taken_out_of_the_text() -> None:
    body = '{"name": "weather", "arguments": {"city": "Ulm"}}'
    text, calls = tool_calls(f"Let me see. <tool_call>\n{body}\n</tool_call>", TOOLS)
    assert (text, [(call.name, call.arguments) for call in calls]) == ("Let me see.", [("weather", '{"city": "Ulm"}')])
    assert tool_calls(body.replace("arguments", "parameters"), TOOLS)[1] == calls


@pytest.mark.parametrize("text", ["No call.", '{"name": "other", "arguments": {}}', "<tool_call>{bad</tool_call>"])
def test_what_is_no_call_stays_text(text: str) -> None:
    assert tool_calls(text, TOOLS) == (text, [])
