"""What the trainer trains on: the three canonical kinds of example that every dataset format is turned into.

Pure: standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ChatExample:
    """A conversation as a chat template takes it.

    Each message has `role` (system, user, assistant, tool) and `content` (always a string, empty beside tool calls);
    `tool_calls` hold their arguments as an object; no key is ever null. `learnt[i]` says whether the i-th message is
    trained on. `ignored_keys` are keys of messages that nothing is done with.
    """

    messages: tuple[dict[str, Any], ...]
    tools: list[dict[str, Any]] | None
    learnt: tuple[bool, ...]
    ignored_keys: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PromptExample:
    """A reply to be learnt behind a prompt that is not. A blank system text is None."""

    prompt: str
    completion: str
    system: str | None


@dataclass(frozen=True, slots=True)
class TextExample:
    """Text that is learnt from its first token to its last."""

    text: str


Example = ChatExample | PromptExample | TextExample
