"""Where a reply is in the text a chat template made of a conversation. Torch-free.

Four ways lead to the characters of a reply, tried in this order; what none of them proves is refused:

1. `{% generation %}` marks of the template, where there are as many as assistant turns and each holds its reply.
2. Prefixes: the reply is what comes between the conversation before it with the generation prompt, and the
   conversation up to it, provided that both are prefixes of the whole text.
3. A stand-in: templates that write earlier turns otherwise than last ones (Qwen3 drops their reasoning), or refuse a
   part of a conversation, are rendered with the reply replaced by a stand-in; the text around it must be the whole's.
4. A stand-in for the name of a tool: for calls in templates that take words and calls in different places.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainer_core.data.template import Message, Span, Template, TemplateRefusal, Tools

STAND_IN = "zqStandInForTheReplyqz"
REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
# What a template may put between the generation prompt and a reply: Qwen3's empty reasoning.
EMPTY_REASONING = re.compile(r"(\s|</?think(ing)?>)*")


class ReplyFinder:
    """Finds replies in one template's texts."""

    def __init__(self, template: Template) -> None:
        self._template = template

    def find(self, text: str, conversation: list[Message], tools: Tools, wanted: Sequence[int]) -> list[Span]:
        """[start, end) in `text` of each message in `wanted`, with the token that closes it. Raises TemplateRefusal."""
        spans = self._by_marks(text, conversation, tools, wanted)
        if spans is None:
            spans = [self._span(text, conversation, tools, index) for index in wanted]
        for (start, end), index in zip(spans, wanted, strict=True):
            for call in conversation[index].get("tool_calls", []):
                if call["function"]["name"] not in text[start:end]:
                    raise TemplateRefusal(f"the chat template does not show the tool call in message {index}")
        return [(start, self._end_of_turn(text, start, end)) for start, end in spans]

    def _span(self, text: str, conversation: list[Message], tools: Tools, index: int) -> Span:
        for find in (self._by_prefixes, self._by_stand_in, self._by_name):
            if span := find(text, conversation, tools, index):
                return span
        raise TemplateRefusal(
            f"the reply in message {index} cannot be told apart in what the chat template writes; "
            "mark the assistant's part of the template with {% generation %} and {% endgeneration %}"
        )

    # -- marks --------------------------------------------------------------------------------------------------------

    def _by_marks(
        self, text: str, conversation: list[Message], tools: Tools, wanted: Sequence[int]
    ) -> list[Span] | None:
        marked = self._template.marked(conversation, tools)
        replies = [index for index, message in enumerate(conversation) if message["role"] == "assistant"]
        if marked is None or marked[0] != text or len(marked[1]) != len(replies):
            return None
        spans = dict(zip(replies, marked[1], strict=True))
        if not all(_holds_reply(text[slice(*spans[index])], conversation[index]) for index in wanted):
            return None
        return [(spans[index][0], self._closing_end(text, spans[index])) for index in wanted]

    def _closing_end(self, text: str, span: Span) -> int:
        """Marks may stop short of the token that closes the turn, without which a model never stops."""
        if self._template.ends_closed(text[slice(*span)].rstrip()):
            return span[1]
        return span[1] + self._template.first_special_end(text[span[1] :])

    # -- prefixes -----------------------------------------------------------------------------------------------------

    def _by_prefixes(self, text: str, conversation: list[Message], tools: Tools, index: int) -> Span | None:
        if index == 0:
            return None
        before = self._template.attempt(conversation[:index], tools, prompt=True)
        if before is None or not text.startswith(before):
            return None
        is_last = index == len(conversation) - 1
        after = text if is_last else self._template.attempt(conversation[: index + 1], tools)
        if after is None or not text.startswith(after) or len(after) <= len(before):
            return None
        return len(before), len(after)

    # -- stand-ins ----------------------------------------------------------------------------------------------------

    def _by_stand_in(self, text: str, conversation: list[Message], tools: Tools, index: int) -> Span | None:
        stand_in = _unlike(text)
        dropped = ("content", "tool_calls", *REASONING_KEYS)
        reply = {key: value for key, value in conversation[index].items() if key not in dropped} | {"content": stand_in}
        around = self._around(stand_in, [*conversation[:index], reply, *conversation[index + 1 :]], tools)
        if around is None:
            return None
        part = self._around(stand_in, [*conversation[:index], reply], tools)
        start = self._after_opening(text, around[0], part, conversation[:index], tools)
        if start is None:
            start = self._after_prompt(text, around[0])
        return self._between(text, start, around[1], None if part is None else part[1])

    def _by_name(self, text: str, conversation: list[Message], tools: Tools, index: int) -> Span | None:
        message = conversation[index]
        if not message.get("tool_calls"):
            return None
        stand_in = _unlike(text)
        call, *others = message["tool_calls"]
        named = {**message, "tool_calls": [{**call, "function": {**call["function"], "name": stand_in}}, *others]}
        around = self._around(stand_in, [*conversation[:index], named, *conversation[index + 1 :]], tools)
        part = self._around(stand_in, [*conversation[:index], named], tools)
        if around is None or part is None:
            return None
        start = self._after_opening(text, around[0], part, conversation[:index], tools)
        return self._between(text, start, around[1], part[1])

    def _around(self, stand_in: str, conversation: list[Message], tools: Tools) -> tuple[str, str] | None:
        """What the template writes before and after the stand-in, if it writes it once."""
        whole = self._template.attempt(conversation, tools)
        if whole is None or whole.count(stand_in) != 1:
            return None
        head, _, tail = whole.partition(stand_in)
        return head, tail

    def _after_opening(
        self, text: str, head: str, part: tuple[str, str] | None, earlier: list[Message], tools: Tools
    ) -> int | None:
        """Where the reply starts, if it opens (a space, the frame of a call) as it does where it is the last one."""
        before = self._template.attempt(earlier, tools, prompt=True) if earlier else None
        if before is None or part is None or not part[0].startswith(before):
            return None
        opening = part[0][len(before) :]
        start = len(head) - len(opening)
        return start if head.endswith(opening) and text.startswith(head[:start]) else None

    def _after_prompt(self, text: str, head: str) -> int | None:
        """Where the reply starts, by the generation prompt, or right where the stand-in was."""
        prompt = self._template.prompt
        end = head.rfind(prompt) + len(prompt) if prompt in head else len(head)
        if not EMPTY_REASONING.fullmatch(head, end):
            end = len(head)
        return end if text.startswith(head[:end]) else None

    def _between(self, text: str, start: int | None, tail: str, tail_if_last: str | None) -> Span | None:
        """From `start` to the end of what closes the turn; `tail` is what the template writes after the reply."""
        if start is None or not text.endswith(tail):
            return None
        if tail_if_last is None:
            closing_end = self._template.first_special_end(tail)
        else:
            # What closes this turn is what follows it both here and where it is the last turn.
            closing_end = self._template.last_special_end(tail[: _n_shared(tail, tail_if_last)])
        end = len(text) - len(tail) + closing_end
        return (start, end) if start < end and start <= len(text) - len(tail) else None

    def _end_of_turn(self, text: str, start: int, end: int) -> int:
        """`end` without the white space that follows the closing special token."""
        reply = text[start:end].rstrip()
        return start + len(reply) if self._template.ends_closed(reply) else end


def _holds_reply(marked: str, message: Message) -> bool:
    """Whether marked text is of this reply: it holds the content, or what is left of it without the reasoning."""
    return bool(marked.strip()) and message["content"].rpartition("</think>")[2].strip() in marked


def _unlike(text: str) -> str:
    """A stand-in that `text` does not hold."""
    stand_in = STAND_IN
    while stand_in in text:
        stand_in += "q"
    return stand_in


def _n_shared(left: str, right: str) -> int:
    """How many characters two texts share from their start."""
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))
