"""Stop strings and tool calls in a reply's text. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from trainer_core.serve.order import ToolCall

MARKED = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


class StopText:
    """Lets text through up to the first stop string; what may be the start of one is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.is_stopped = False

    def take(self, text: str) -> str:
        """What may be shown now."""
        if self.is_stopped:
            return ""
        self._held += text
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.is_stopped = True
            return self._let_go(min(found))
        return self._let_go(len(self._held) - self._n_doubtful())

    def rest(self) -> str:
        return "" if self.is_stopped else self._let_go(len(self._held))

    def _let_go(self, n: int) -> str:
        shown, self._held = self._held[:n], self._held[n:]
        return shown

    def _n_doubtful(self) -> int:
        """Characters at the end that a stop string may begin with."""
        lengths = (
            n for stop in self._stops for n in range(len(stop) - 1, 0, -1) if self._held.endswith(stop[:n])
        )  # fmt: skip
        return max(lengths, default=0)


def tool_calls(text: str, tools: Sequence[dict[str, Any]]) -> tuple[str, list[ToolCall]]:
    """The text without its calls, and the calls of tools that there are.

    Written as most templates teach it: `<tool_call>{"name", "arguments"}</tool_call>`, or the whole reply as one
    object with `arguments` or `parameters`.
    """
    names = {tool["function"]["name"] for tool in tools}
    marked = [call for body in MARKED.findall(text) if (call := _call(body, names))]
    if marked:
        return MARKED.sub("", text).strip(), marked
    alone = _call(text.strip(), names)
    return ("", [alone]) if alone else (text, [])


def _call(body: str, names: set[str]) -> ToolCall | None:
    try:
        value = json.loads(body)
    except ValueError:
        return None
    if not isinstance(value, dict) or value.get("name") not in names:
        return None
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        return ToolCall(name=value["name"], arguments=arguments)
    return ToolCall(name=value["name"], arguments=json.dumps(arguments or {}, ensure_ascii=False))
