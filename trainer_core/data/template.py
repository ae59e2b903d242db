"""One tokenizer's chat template as functions: a conversation in, text out. Torch-free; knows nothing of loss masks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from jinja2.exceptions import TemplateError
from transformers.utils.chat_template_utils import render_jinja_template

from trainer_core.model.tokenizer import LoadedTokenizer

Message = dict[str, Any]
Tools = list[dict[str, Any]] | None
Span = tuple[int, int]

GENERATION_MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")
# Besides its own errors a template raises what Python raises, such as "a" + {}; transformers adds ValueError.
RENDER_ERRORS = (TemplateError, TypeError, ValueError)


class TemplateRefusal(ValueError):
    """The chat template cannot render this conversation, or its replies cannot be told apart in what it renders."""


class Template:
    """Messages are canonical, as in examples.ChatExample: content is a string, arguments of tool calls are objects."""

    def __init__(self, loaded: LoadedTokenizer) -> None:
        self._tokenizer = loaded.tokenizer
        self.eos: str | None = loaded.tokenizer.eos_token
        self.special_tokens = tuple(loaded.special_tokens)
        self._special = re.compile("|".join(re.escape(token) for token in self.special_tokens) or r"(?!)")
        self.prompt = self._generation_prompt()

    def render_whole(self, messages: Sequence[Message], tools: Tools) -> tuple[list[Message], str]:
        """The conversation in the form the template takes, and its text. Raises TemplateRefusal.

        Most templates want the arguments of a tool call as an object and write JSON themselves; some join them to a
        string and fail on an object, or would write it as Python does. Those get the JSON text.
        """
        for arguments_as_text in (False, True):
            conversation = [_with_json_arguments(message) if arguments_as_text else message for message in messages]
            try:
                text = self._render(conversation, tools)
            except RENDER_ERRORS as error:
                if not arguments_as_text and _arguments(conversation):
                    continue
                raise TemplateRefusal(f"the chat template refuses the conversation: {error}") from error
            if not any(_is_mangled(value, text) for value in _arguments(conversation)):
                return conversation, text
        raise TemplateRefusal("the chat template writes the arguments of a tool call neither as JSON nor as given")

    def attempt(self, messages: Sequence[Message], tools: Tools, *, prompt: bool = False) -> str | None:
        """The text, or None where the template refuses: a part of a conversation need not be one itself."""
        try:
            return self._render(messages, tools, prompt=prompt)
        except RENDER_ERRORS:
            return None

    def marked(self, messages: Sequence[Message], tools: Tools) -> tuple[str, list[Span]] | None:
        """The text and what its `{% generation %}` marks enclose; None for a template without marks."""
        template = self._tokenizer.get_chat_template(tools=tools)
        if not GENERATION_MARK.search(template):
            return None
        texts, spans = render_jinja_template(
            conversations=[list(messages)],
            tools=tools,
            chat_template=template,
            return_assistant_tokens_mask=True,
            **self._tokenizer.special_tokens_map,
        )
        return texts[0], spans[0]

    def ends_closed(self, text: str) -> bool:
        return text.endswith(self.special_tokens)

    def first_special_end(self, text: str) -> int:
        """Length of white space and the special token that `text` starts with; 0 where it starts otherwise."""
        match = self._special.search(text)
        return match.end() if match and not text[: match.start()].strip() else 0

    def last_special_end(self, text: str) -> int:
        """Where the last special token of `text` ends; 0 where there is none."""
        return max((match.end() for match in self._special.finditer(text)), default=0)

    def _render(self, messages: Sequence[Message], tools: Tools, *, prompt: bool = False) -> str:
        return str(
            self._tokenizer.apply_chat_template(
                list(messages), tools=tools, tokenize=False, add_generation_prompt=prompt
            )
        )

    def _generation_prompt(self) -> str:
        """What the template writes to start a reply, such as `<|im_start|>assistant`; may be empty."""
        probe = [{"role": "user", "content": "x"}]
        without, within = self.attempt(probe, None), self.attempt(probe, None, prompt=True)
        if without is None or within is None or not within.startswith(without):
            return ""
        return within[len(without) :]


def _with_json_arguments(message: Message) -> Message:
    """The message with the arguments of its tool calls as JSON text."""
    if not message.get("tool_calls"):
        return message
    calls = []
    for call in message["tool_calls"]:
        arguments = json.dumps(call["function"]["arguments"], ensure_ascii=False)
        calls.append({**call, "function": {**call["function"], "arguments": arguments}})
    return {**message, "tool_calls": calls}


def _arguments(conversation: list[Message]) -> list[Any]:
    return [call["function"]["arguments"] for message in conversation for call in message.get("tool_calls", [])]


def _is_mangled(arguments: Any, text: str) -> bool:
    """An object written as Python writes it, or JSON text that was quoted once more."""
    if isinstance(arguments, str):
        quoted = json.dumps(arguments, ensure_ascii=False)
        return quoted != f'"{arguments}"' and quoted in text
    as_python = str(arguments)
    return as_python != json.dumps(arguments, ensure_ascii=False) and as_python in text
