"""What the trainer trains on: the canonical kinds of example that every dataset format is turned into.

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


# Messages in canonical form, as in a ChatExample.
Messages = tuple[dict[str, Any], ...]
Label = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PreferenceExample:
    """Two replies to one prompt, the first of them preferred: three texts, or three lists of messages, never a mixture.

    Of messages, the prompt ends with the user (or a tool) and both replies begin and end with the assistant; a system
    text is then the prompt's first message and `system` is None. `margin` is the
    row's own value, for reward models alone.
    """

    prompt: str | Messages
    chosen: str | Messages
    rejected: str | Messages
    system: str | None = None
    tools: list[dict[str, Any]] | None = None
    margin: Any = None


@dataclass(frozen=True, slots=True)
class FeedbackExample:
    """A completion that was found good (`label` true) or bad."""

    prompt: str
    completion: str
    label: bool
    system: str | None


@dataclass(frozen=True, slots=True)
class LabelExample:
    """A text, or a pair of texts, with its class, its classes (a tuple), or its number, as the file has it.

    Texts that stand for numbers or truth values in all rows are typed by `labels.LabelCensus`.
    """

    text: str
    text_pair: str | None
    label: Label


@dataclass(frozen=True, slots=True)
class TokensExample:
    """Words, and one tag for each."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...] | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PromptOnly:
    """What is asked: text, or messages that do not end with the assistant. `item` is the whole row, for graders."""

    prompt: str | Messages
    system: str | None
    item: dict[str, Any]
    tools: list[dict[str, Any]] | None = None


# What a language model learns to write, and what every other method takes.
Example = ChatExample | PromptExample | TextExample
AnyExample = Example | PreferenceExample | FeedbackExample | LabelExample | TokensExample | PromptOnly
