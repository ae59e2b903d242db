"""Prompt and completion as two sequences, for encoder-decoder models. Torch-free."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainer_core.contract import CauseCode, RunConfig
from trainer_core.contract.method_options import Seq2SeqOptions
from trainer_core.data.examples import PromptExample
from trainer_core.model.tokenizer import LoadedTokenizer
from trainer_core.run.faults import Fault


@dataclass(frozen=True, slots=True)
class Pair:
    """What is read and what is written; every label is learnt, the last is eos unless the completion was cut."""

    ids: Sequence[int]
    labels: Sequence[int]
    n_dropped_tokens: int = 0
    """Of both sides."""

    @property
    def is_truncated(self) -> bool:
        return self.n_dropped_tokens > 0

    @property
    def n_tokens(self) -> int:
        return len(self.ids) + len(self.labels)

    @property
    def n_learnt(self) -> int:
        return len(self.labels)

    def marked(self) -> Iterator[tuple[int, bool]]:
        yield from ((id_, False) for id_ in self.ids)
        yield from ((id_, True) for id_ in self.labels)


class PairEncoder:
    """Raises Fault(model_unavailable) for a tokenizer without eos: nothing could end a completion."""

    def __init__(self, loaded: LoadedTokenizer, config: RunConfig) -> None:
        self._tokenizer = loaded.tokenizer
        self._options = config.seq2seq or Seq2SeqOptions()
        self._max_source = config.data.max_length
        self._max_target = self._options.max_target_length or config.data.max_length
        if loaded.eos_id is None:
            raise Fault(
                CauseCode.MODEL_UNAVAILABLE,
                "The model's tokenizer names no eos token: nothing could end a completion.",
                hint="Set eos_token in the model's tokenizer_config.json.",
                param="model",
            )
        self._eos_id = loaded.eos_id

    def draft(self, example: PromptExample) -> tuple[str, str]:
        system = f"{example.system}\n\n" if example.system else ""
        return f"{self._options.source_prefix}{system}{example.prompt}", example.completion

    def encode(self, drafts: Sequence[tuple[str, str]]) -> Iterator[list[Pair]]:
        if not drafts:
            return
        # verbose=False: what is too long is cut below, so the library's warning would mislead.
        sources = self._tokenizer([source for source, _ in drafts], verbose=False)["input_ids"]
        targets = self._tokenizer(text_target=[target for _, target in drafts], verbose=False)["input_ids"]
        for source, target in zip(sources, targets, strict=True):
            kept = self._cut(source, self._max_source)
            ended = target if target and target[-1] == self._eos_id else [*target, self._eos_id]
            n_dropped = max(0, len(source) - self._max_source) + max(0, len(ended) - self._max_target)
            yield [Pair(array("i", kept), array("i", ended[: self._max_target]), n_dropped)]

    def settle(self, train: list[Pair], held_out: list[Pair] | None) -> tuple[list[Pair], list[Pair] | None]:
        """Nothing depends on the rows as a whole."""
        return train, held_out

    def notes(self) -> list[str]:
        prefix = self._options.source_prefix
        return [f"Every prompt begins with {prefix!r}."] if prefix else []

    def _cut(self, ids: list[int], size: int) -> list[int]:
        """At most `size` tokens; an eos that closed the whole closes what is left."""
        if len(ids) <= size:
            return ids
        return [*ids[: size - 1], ids[-1]] if ids[-1] == self._eos_id else ids[:size]
