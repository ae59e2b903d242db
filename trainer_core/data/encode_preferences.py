"""A prompt with its preferred and its other reply as two sequences, each encoded as fine-tuning encodes it. Torch-free.

A row of which one reply has no token left under `max_length` is dropped whole and counted: half a comparison is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainer_core.contract import CauseCode, RunConfig
from trainer_core.contract.method_options import PreferenceOptions
from trainer_core.data.encode import Draft, Encoder
from trainer_core.data.examples import ChatExample, FeedbackExample, Messages, PreferenceExample, PromptExample
from trainer_core.data.sides import Sides
from trainer_core.data.template import TemplateRefusal
from trainer_core.model.tokenizer import LoadedTokenizer
from trainer_core.run.faults import Fault
from trainer_core.zero.owners import stage_of, strategy_of


@dataclass(frozen=True, slots=True)
class Preferred(Sides):
    """`reference` holds both replies' log-probabilities under the model as it was before training."""

    reference: tuple[float, float] = (0.0, 0.0)

    @property
    def n_learnt(self) -> int:
        sides = self.chosen.n_learnt, self.rejected.n_learnt
        return sum(sides) if all(sides) else 0

    def marked(self) -> Iterator[tuple[int, bool]]:
        yield from self.chosen.marked()
        yield from self.rejected.marked()


class PreferenceEncoder:
    """Raises Fault(config_invalid) for what this method cannot train."""

    def __init__(self, loaded: LoadedTokenizer, config: RunConfig) -> None:
        self._refuse(config)
        # Rows of two texts are rendered by the same rule as for fine-tuning; messages always by the template.
        self._encoder = Encoder(loaded, config.data.model_copy(update={"format": "prompt_completion"}))
        self._has_template = bool(loaded.tokenizer.chat_template)

    def draft(self, example: PreferenceExample | FeedbackExample) -> tuple[Draft, Draft]:
        """Raises TemplateRefusal where the chat template does not take the row."""
        assert isinstance(example, PreferenceExample)  # __init__ refused other rows
        return pair_drafts(self._encoder, example, self._has_template)

    def encode(self, drafts: Sequence[tuple[Draft, Draft]]) -> Iterator[list[Preferred]]:
        sides = self._encoder.encode([draft for pair in drafts for draft in pair])
        for (chosen,), (rejected,) in zip(sides, sides, strict=True):
            yield [Preferred(chosen, rejected)]

    def settle(
        self, train: list[Preferred], held_out: list[Preferred] | None
    ) -> tuple[list[Preferred], list[Preferred] | None]:
        """Nothing depends on the rows as a whole."""
        return train, held_out

    def notes(self) -> list[str]:
        return self._encoder.notes()

    def _refuse(self, config: RunConfig) -> None:
        options = config.preference or PreferenceOptions()
        if config.data.format != "preference":
            raise Fault(
                CauseCode.CONFIG_INVALID,
                f"The method preference learns from pairs, and the rows are of the format {config.data.format}.",
                hint="Send rows with prompt, chosen and rejected.",
                param="dataset",
            )
        if config.training.get("label_smoothing_factor"):
            raise Fault(
                CauseCode.CONFIG_INVALID,
                "The method preference has no use for training.label_smoothing_factor.",
                hint="Leave it out; preference.label_smoothing is the share of swapped pairs of the loss robust.",
                param="training.label_smoothing_factor",
            )
        is_deepspeed = strategy_of(config.parallel) == "deepspeed"
        if options.has_reference and is_deepspeed and stage_of(config.parallel) == 3:
            raise Fault(
                CauseCode.CONFIG_INVALID,
                f"The loss {options.loss} compares with the model before training, and ZeRO-3 holds no whole model.",
                hint="Use zero_stage 2, or the loss orpo, which needs no reference.",
                param="parallel.zero_stage",
            )


def pair_drafts(encoder: Encoder, example: PreferenceExample, has_template: bool) -> tuple[Draft, Draft]:
    """The prompt with each of its replies. Raises TemplateRefusal where the chat template does not take the row."""
    chosen, rejected = (_with_reply(encoder, example, one, has_template) for one in (example.chosen, example.rejected))
    return chosen, rejected


def _with_reply(encoder: Encoder, example: PreferenceExample, reply: str | Messages, has_template: bool) -> Draft:
    if isinstance(example.prompt, str) and isinstance(reply, str):
        return encoder.draft(PromptExample(example.prompt, reply, example.system))
    if not has_template:
        raise TemplateRefusal("the row holds messages, and the model's tokenizer has no chat template")
    prompt, messages = tuple(example.prompt), tuple(reply)
    learnt = [False] * len(prompt) + [message["role"] == "assistant" for message in messages]  # type: ignore[index]
    return encoder.draft(ChatExample((*prompt, *messages), example.tools, tuple(learnt)))  # type: ignore[arg-type]
