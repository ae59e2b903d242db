"""A conversation as text by the tokenizer's chat template, and which of its characters are learnt. Torch-free.

The template alone decides what is shown; a reply that it does not show is refused, never left out in silence. A reply
reaches through the special token that closes it, and white space after that token is not learnt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer_core.data.replies import ReplyFinder
from trainer_core.data.template import Message, Span, Template, Tools
from trainer_core.model.tokenizer import LoadedTokenizer


@dataclass(frozen=True)
class ChatText:
    """`spans` are the learnt characters, in order: [start, end) offsets into `text`."""

    text: str
    spans: list[Span]
    closed_by_us: bool = False  # the template left the last reply open, and eos was added to it
    tools_unseen: bool = False  # tools were given and the template does not show them


class ChatRenderer:
    """Renders conversations by one tokenizer's template; a tokenizer without one is refused before."""

    def __init__(self, loaded: LoadedTokenizer) -> None:
        self._template = Template(loaded)
        self._finder = ReplyFinder(self._template)

    def render(self, messages: Sequence[Message], tools: Tools, learnt: Sequence[bool]) -> ChatText:
        """Raises TemplateRefusal with a sentence for people. `learnt` has one flag a message."""
        tools = tools or None
        conversation, text = self._template.render_whole(messages, tools)
        wanted = [index for index, flag in enumerate(learnt) if flag]
        spans = self._finder.find(text, conversation, tools, wanted)
        tools_unseen = tools is not None and self._template.attempt(conversation, None) == text
        if wanted and wanted[-1] == len(conversation) - 1:
            return self._closed(text, spans, tools_unseen)
        return ChatText(text, spans, tools_unseen=tools_unseen)

    def _closed(self, text: str, spans: list[Span], tools_unseen: bool) -> ChatText:
        """A last reply that nothing closes gets the eos: a model that never saw the end of a reply never ends one."""
        start, end = spans[-1]
        eos = self._template.eos
        if self._template.ends_closed(text[start:end]) or eos is None or text[end:].strip():
            return ChatText(text, spans, tools_unseen=tools_unseen)
        closed = [*spans[:-1], (start, end + len(eos))]
        return ChatText(text[:end] + eos, closed, closed_by_us=True, tools_unseen=tools_unseen)
