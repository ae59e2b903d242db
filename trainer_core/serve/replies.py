"""One reply: the model writes in a thread of its own, its text comes out piece by piece."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList, TextIteratorStreamer

from trainer_core.serve.loading import Models
from trainer_core.serve.order import Finished, FinishReason, Piece, Prompt, ServeOrder, ToolCall
from trainer_core.serve.rendering import Unfit, encode
from trainer_core.serve.stopping import StopText, tool_calls

DEFAULT_MAX_TOKENS = 512
Say = Callable[[Any], None]


class _Streamer(TextIteratorStreamer):
    """Counts the tokens that were written, and knows the last one."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self.n_tokens = 0
        self.last: int | None = None

    def put(self, value: Any) -> None:
        if not self.next_tokens_are_prompt:
            self.n_tokens += int(value.numel())
            self.last = int(value.flatten()[-1])
        super().put(value)


class _Until(StoppingCriteria):
    """Ends generation at the next token once the event is set."""

    def __init__(self, is_over: threading.Event) -> None:
        self._is_over = is_over

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        return torch.full((input_ids.shape[0],), self._is_over.is_set(), dtype=torch.bool, device=input_ids.device)


class Reply:
    """`write` once. `cancel` may come from another thread at any time."""

    def __init__(self, order: ServeOrder, models: Models, prompt: Prompt) -> None:
        self._order = order
        self._models = models
        self._prompt = prompt
        self._is_over = threading.Event()
        self._is_cancelled = threading.Event()
        self._error: BaseException | None = None

    def cancel(self) -> None:
        self._is_cancelled.set()
        self._is_over.set()

    def write(self, say: Say) -> None:
        """Says every piece and the end. Raises Unfit, or what the model raises."""
        prompt = self._prompt
        if prompt.variant not in self._models.variants:
            raise Unfit("no_such_variant", " ".join(self._models.notes) or "model: there is no such variant", "model")
        ids = encode(self._models.tokenizer, prompt, self._order.render)
        max_tokens = self._max_tokens(len(ids))
        streamer = _Streamer(self._models.tokenizer)
        with self._models.using(prompt.variant) as model:
            ends = _ends(model, self._models.tokenizer)
            config = self._generation(max_tokens, ends)
            thread = threading.Thread(target=self._generate, args=(model, ids, config, streamer), name="reply")
            thread.start()
            try:
                calls = self._pass_on(streamer, say)
            finally:
                self._is_over.set()
                thread.join()
        if self._error is not None:
            raise self._error
        say(
            Finished(
                id=prompt.id,
                finish_reason=self._reason(streamer, ends, max_tokens, calls),
                prompt_tokens=len(ids),
                completion_tokens=streamer.n_tokens,
                tool_calls=calls,
            )
        )

    def _pass_on(self, streamer: _Streamer, say: Say) -> list[ToolCall]:
        """With tools the text is looked at as a whole first: a call is no text to be shown."""
        filtered, tools, whole = StopText(self._prompt.sampling.stop), self._prompt.tools, ""
        for text in streamer:
            shown = filtered.take(text)
            whole += shown
            if shown and not tools:
                say(Piece(id=self._prompt.id, text=shown))
            if filtered.is_stopped and not self._is_over.is_set():
                self._stopped = True
                self._is_over.set()
        rest = filtered.rest()
        calls: list[ToolCall] = []
        if tools:
            rest, calls = tool_calls(whole + rest, tools)
        if rest:
            say(Piece(id=self._prompt.id, text=rest))
        return calls

    _stopped = False

    def _reason(self, streamer: _Streamer, ends: set[int], max_tokens: int, calls: list[ToolCall]) -> FinishReason:
        if self._is_cancelled.is_set():
            return "cancelled"
        if calls:
            return "tool_calls"
        if self._stopped or streamer.last in ends:
            return "stop"
        return "length" if streamer.n_tokens >= max_tokens else "stop"

    def _max_tokens(self, n_prompt: int) -> int:
        """Raises Unfit(context_length_exceeded) where prompt and reply do not fit the model."""
        asked, limit = self._prompt.sampling.max_tokens, self._models.context_length
        if limit is None:
            return asked or DEFAULT_MAX_TOKENS
        # An encoder-decoder reads the prompt and writes the reply each on positions of their own.
        room = limit if self._order.kind == "seq2seq" else limit - n_prompt
        if n_prompt > limit or room < 1 or (asked or 1) > room:
            wanted = "" if asked is None else f", and {asked} were asked for in the reply"
            raise Unfit(
                "context_length_exceeded",
                f"messages: this model's maximum context length is {limit} tokens; the messages have {n_prompt}"
                f"{wanted}. Shorten the messages or lower max_tokens.",
                "messages",
            )
        return asked or min(DEFAULT_MAX_TOKENS, room)

    def _generation(self, max_tokens: int, ends: set[int]) -> GenerationConfig:
        tokenizer, sampling = self._models.tokenizer, self._prompt.sampling
        pad = tokenizer.pad_token_id
        options: dict[str, Any] = {"do_sample": False}
        if sampling.temperature > 0:
            # No filter but those that were asked for: some models bring a top_k of 50 along.
            options = {"do_sample": True, "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": 0}
        return GenerationConfig(
            max_new_tokens=max_tokens,
            eos_token_id=sorted(ends) or None,
            pad_token_id=pad if pad is not None else min(ends, default=0),
            **options,
        )

    def _generate(self, model: Any, ids: list[int], config: GenerationConfig, streamer: _Streamer) -> None:
        try:
            if self._prompt.sampling.seed is not None:
                torch.manual_seed(self._prompt.sampling.seed)
            inputs = torch.tensor([ids], device=self._order.device)
            if self._order.kind == "seq2seq":
                config.decoder_start_token_id = model.config.decoder_start_token_id
            with torch.inference_mode():
                model.generate(
                    input_ids=inputs,
                    attention_mask=torch.ones_like(inputs),
                    generation_config=config,
                    streamer=streamer,
                    stopping_criteria=StoppingCriteriaList([_Until(self._is_over)]),
                )
        except BaseException as error:  # told by the thread that waits for the text
            self._error = error
            streamer.on_finalized_text("", stream_end=True)


def _ends(model: Any, tokenizer: Any) -> set[int]:
    """Every token that ends a reply: the model's and the tokenizer's."""
    found = getattr(model.generation_config, "eos_token_id", None)
    listed = found if isinstance(found, list) else [found]
    return {int(one) for one in [*listed, tokenizer.eos_token_id] if one is not None}
