"""Examples to token ids and labels, the same in preflight and in training. Torch-free.

Rules, one place each:
- A conversation is the chat template's text, tokenised as it stands: the template alone decides on bos.
- Prompt and completion rendered plain are joined as they are, tokenised together, eos after them; where a token would
  reach over the border they are tokenised apart, since at generation time the prompt is tokenised alone.
- A text is learnt whole, eos after it. One longer than `max_length` is cut into windows that share one token, so that
  every token but the very first is learnt once and nothing is lost.
- Other rows longer than `max_length` are cut on the right, and what was cut is counted.
- The first label of a sequence is never learnt: nothing comes before it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trainer_core.contract import CauseCode, DataSource
from trainer_core.data.chat import ChatRenderer
from trainer_core.data.encoded import IGNORED as IGNORED
from trainer_core.data.encoded import Encoded as Encoded
from trainer_core.data.examples import ChatExample, Example, TextExample
from trainer_core.data.packing import fill_note, pack
from trainer_core.data.template import Message, Span
from trainer_core.model.tokenizer import LoadedTokenizer
from trainer_core.run.faults import Fault


@dataclass(frozen=True, slots=True)
class Draft:
    """A row as text, before tokenising. `border` is where a plain prompt ends."""

    text: str
    spans: list[Span]
    is_chat: bool = False
    is_windowed: bool = False
    border: int | None = None
    notes: tuple[str, ...] = ()


CLOSED_BY_US = "The chat template leaves the last reply open; the eos token was added after it."
TOOLS_UNSEEN = "The chat template does not show the tools of a row to the model."


class Encoder:
    """Encodes by one tokenizer and one job's rules. Raises Fault(CONFIG_INVALID) where they do not fit together."""

    def __init__(self, loaded: LoadedTokenizer, data: DataSource, *, packs: bool = False) -> None:
        self._loaded = loaded
        self._data = data
        self._notes: dict[str, None] = {}
        self._max_length = data.max_length
        self._packs = packs
        has_template = bool(loaded.tokenizer.chat_template)
        is_rows_of_two = data.format in ("prompt_completion", "instruction")
        self._is_chat = is_rows_of_two and (data.render == "chat" or (data.render == "auto" and has_template))
        if (self._is_chat or data.format == "messages") and not has_template:
            raise Fault(
                CauseCode.CONFIG_INVALID,
                "The model's tokenizer has no chat template, and the rows are to be rendered as a conversation.",
                hint="Register the chat (instruct) model, add a chat_template.jinja to the model's folder, or send "
                "prompt/completion rows with dataset.render set to plain.",
                param="model",
            )
        if loaded.eos_id is None and not self._is_chat and data.format != "messages":
            raise Fault(
                CauseCode.MODEL_UNAVAILABLE,
                "The model's tokenizer names no eos token, and the rows are not rendered as a conversation: "
                "nothing could end a text.",
                hint="Set eos_token in the model's tokenizer_config.json.",
                param="model",
            )
        self._renderer = ChatRenderer(loaded) if has_template else None

    def notes(self) -> list[str]:
        """How plain rows are rendered, and what the template did with some row."""
        if self._data.format in ("messages", "text"):
            return list(self._notes)
        rule = "as a conversation" if self._is_chat else "joined as they are"
        return [f"Rows are rendered {rule} (dataset.render is {self._data.render}).", *self._notes]

    def settle(
        self, train: list[Encoded], held_out: list[Encoded] | None
    ) -> tuple[list[Encoded], list[Encoded] | None]:
        """Train rows are packed where the job says so. Held-out rows stay as they are, so that figures compare."""
        if not self._packs:
            return train, held_out
        packed = pack(train, self._max_length)
        self._notes[fill_note(len(train), packed, self._max_length)] = None
        return list(packed), held_out

    # -- to text ------------------------------------------------------------------------------------------------------

    def draft(self, example: Example) -> Draft:
        """Raises TemplateRefusal where the chat template does not take the row."""
        if isinstance(example, TextExample):
            return Draft(example.text, [(0, len(example.text))], is_windowed=True)
        if isinstance(example, ChatExample):
            return self._chat(list(example.messages), example.tools, example.learnt)
        if self._is_chat:
            messages = [
                *([{"role": "system", "content": example.system}] if example.system else []),
                {"role": "user", "content": example.prompt},
                {"role": "assistant", "content": example.completion},
            ]
            return self._chat(messages, None, [message["role"] == "assistant" for message in messages])
        prompt = f"{example.system}\n\n{example.prompt}" if example.system else example.prompt
        text = prompt + example.completion
        return Draft(text, [(len(prompt), len(text))], border=len(prompt))

    def _chat(self, messages: list[Message], tools: list[Any] | None, learnt: Sequence[bool]) -> Draft:
        assert self._renderer is not None  # __init__ refused conversations without a template
        chat = self._renderer.render(messages, tools, learnt)
        told = ((CLOSED_BY_US, chat.closed_by_us), (TOOLS_UNSEEN, chat.tools_unseen))
        return Draft(chat.text, chat.spans, is_chat=True, notes=tuple(note for note, applies in told if applies))

    # -- to tokens ----------------------------------------------------------------------------------------------------

    def encode(self, drafts: Sequence[Draft]) -> Iterator[list[Encoded]]:
        """The sequences of each draft, in order: one, or for a long text several."""
        chats = iter(self._tokenise([draft.text for draft in drafts if draft.is_chat], adds_special=False))
        plains = iter(self._tokenise([draft.text for draft in drafts if not draft.is_chat], adds_special=True))
        for draft in drafts:
            self._notes |= dict.fromkeys(draft.notes)
            if draft.is_chat:
                ids, offsets = next(chats)
                labels = _labels(ids, offsets, draft.spans)
            else:
                ids, labels = self._plain(draft, *next(plains))
            yield list(self._sequences(ids, labels, draft))

    def _tokenise(self, texts: list[str], *, adds_special: bool) -> Iterator[tuple[list[int], list[Span]]]:
        if not texts:
            return
        # verbose=False: a text beyond the model's window is cut below, so the library's warning would mislead.
        out = self._loaded.tokenizer(texts, add_special_tokens=adds_special, return_offsets_mapping=True, verbose=False)
        yield from zip(out["input_ids"], out["offset_mapping"], strict=True)

    def _plain(self, draft: Draft, ids: list[int], offsets: list[Span]) -> tuple[list[int], list[int]]:
        bos, eos = self._loaded.tokenizer.bos_token_id, self._loaded.eos_id
        if bos is not None and ids[:2] == [bos, bos]:
            ids, offsets = ids[1:], offsets[1:]  # the text says bos itself
        while ids and offsets[-1] == (0, 0) and ids[-1] == eos:
            ids, offsets = ids[:-1], offsets[:-1]  # some tokenizers add eos themselves; it is added below for all
        labels = _labels(ids, offsets, draft.spans)
        border = draft.border
        if border is not None and any(start < border < end for start, end in offsets):
            ids, labels = self._apart(draft.text[:border], draft.text[border:])
        return ([*ids, eos], [*labels, eos]) if eos is not None else (ids, labels)

    def _apart(self, prompt: str, completion: str) -> tuple[list[int], list[int]]:
        """Prompt and completion as two tokenisations. A line feed goes before the completion and is taken off again,
        since SentencePiece puts a space before the start of a text."""
        (ids, offsets) = next(self._tokenise([prompt], adds_special=True))
        while ids and offsets[-1] == (0, 0) and ids[-1] == self._loaded.eos_id:
            ids, offsets = ids[:-1], offsets[:-1]
        (feed, _), (after_feed, _), (alone, _) = self._tokenise(
            ["\n", "\n" + completion, completion], adds_special=False
        )
        reply = after_feed[len(feed) :] if after_feed[: len(feed)] == feed else alone
        return [*ids, *reply], [*[IGNORED] * len(ids), *reply]

    def _sequences(self, ids: list[int], labels: list[int], draft: Draft) -> Iterator[Encoded]:
        size = self._max_length
        if not draft.is_windowed or len(ids) <= size:
            yield _encoded(ids[:size], labels[:size], max(0, len(ids) - size))
            return
        for start in range(0, len(ids) - 1, size - 1):
            yield _encoded(ids[start : start + size], labels[start : start + size])


def _labels(ids: list[int], offsets: list[Span], spans: list[Span]) -> list[int]:
    """A token is learnt if any of its characters is; tokens of one character (bytes of an emoji) share its offsets."""
    labels = [IGNORED] * len(ids)
    at = 0
    for index, (start, end) in enumerate(offsets):
        while at < len(spans) and start >= spans[at][1]:
            at += 1
        if at == len(spans):
            break
        if end > spans[at][0]:
            labels[index] = ids[index]
    return labels


def _encoded(ids: list[int], labels: list[int], n_dropped_tokens: int = 0) -> Encoded:
    return Encoded(array("i", ids), array("i", [IGNORED, *labels[1:]]), n_dropped_tokens)
