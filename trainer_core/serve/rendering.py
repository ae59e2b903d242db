"""From messages to the token ids that the model reads: by the tokenizer's chat template, or as they are."""

from __future__ import annotations

import json
from typing import Any, Literal

from trainer_core.data.template import RENDER_ERRORS
from trainer_core.serve.order import Prompt


class Unfit(Exception):
    """The prompt cannot be answered by this model."""

    def __init__(self, code: str, message: str, param: str) -> None:
        super().__init__(message)
        self.code, self.param = code, param


def encode(tokenizer: Any, prompt: Prompt, render: Literal["auto", "plain"]) -> list[int]:
    """Raises Unfit where the template refuses the messages, or there is none and they are more than a prompt."""
    if tokenizer.chat_template is None or render == "plain":
        ids: list[int] = tokenizer(_plain(prompt))["input_ids"]
        return ids
    for as_text in (False, True):  # some templates take the arguments of a call as an object, some as JSON text
        messages = [_message(message, as_text=as_text) for message in prompt.messages]
        try:
            text = tokenizer.apply_chat_template(
                messages, tools=prompt.tools, tokenize=False, add_generation_prompt=True
            )
        except RENDER_ERRORS as error:
            if as_text:
                message = f"messages: the model's chat template refuses the conversation: {str(error)[:300]}"
                raise Unfit("template_refused", message, "messages") from error
            continue
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])
    raise AssertionError("unreachable")


def _plain(prompt: Prompt) -> str:
    if prompt.tools:
        message = "tools: the model has no chat template, so it cannot be told of tools; leave them out"
        raise Unfit("no_chat_template", message, "tools")
    roles = [message["role"] for message in prompt.messages]
    if roles not in (["user"], ["system", "user"], ["developer", "user"]):
        message = (
            "messages: the model has no chat template, so it answers one user message, with a system message before "
            f"it at most; found {', '.join(roles[:8])}"
        )
        raise Unfit("no_chat_template", message, "messages")
    return "\n\n".join(str(message["content"]) for message in prompt.messages)


def _message(message: dict[str, Any], *, as_text: bool) -> dict[str, Any]:
    shown = {**message, "content": message.get("content") or ""}
    if message["role"] == "developer":
        shown["role"] = "system"
    if message.get("tool_calls") and not as_text:
        shown["tool_calls"] = [_parsed(call) for call in message["tool_calls"]]
    return shown


def _parsed(call: dict[str, Any]) -> dict[str, Any]:
    arguments = call["function"]["arguments"]
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        value = arguments
    return {**call, "function": {**call["function"], "arguments": value}}
