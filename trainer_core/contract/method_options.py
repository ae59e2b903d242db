"""Each method's own options: the block of a job's body that is named like the method. Pure: pydantic only.

`{"method": "classification", "classification": {"class_weights": "balanced"}, ...}`.
Read through `trainer_core.contract`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, StringConstraints, ValidationInfo, field_validator

from trainer_core.frozen import Frozen
from trainer_core.numbers import Number, PositiveNumber, PositiveWholeNumber

LabelName = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class SftOptions(Frozen):
    """Supervised fine-tuning: a causal model learns to write replies."""

    packing: bool = Field(
        default=False,
        description="Put several train rows into one of dataset.max_length tokens; none looks into another.",
    )


class PretrainOptions(Frozen):
    """A causal model learns text, one document after the other in blocks of dataset.max_length tokens."""

    document_boundaries: Literal["attend", "mask"] = Field(
        default="attend",
        description="attend: a block's tokens look back over the ends of documents; mask: each document stands alone.",
    )


class Seq2SeqOptions(Frozen):
    """An encoder-decoder learns to write the completion from the prompt. Generation is set among the training options:
    predict_with_generate, generation_max_length, generation_num_beams, generation_config."""

    source_prefix: Annotated[str, StringConstraints(max_length=1000)] = Field(
        default="", description="Put before every prompt as it stands, such as `translate English to German: `."
    )
    max_target_length: Annotated[
        Annotated[PositiveWholeNumber, Field(ge=2, le=2**20)] | None,
        Field(description="Tokens a completion; longer ones are cut and counted. null: dataset.max_length."),
    ] = None
    bleu_tokenize: Literal["13a", "intl", "zh", "char", "none"] = Field(
        default="13a", description="How sacrebleu splits words: 13a for spaced languages, zh or char for others."
    )


class ClassificationOptions(Frozen):
    """A text, or a pair of texts, gets a class, several classes, or a number."""

    problem: Literal["auto", "single_label", "multi_label", "regression"] = Field(
        default="auto",
        description="auto: lists of labels are multi_label, numbers with a fraction regression, others single_label.",
    )
    class_weights: Annotated[
        Literal["none", "balanced"] | dict[LabelName, PositiveNumber],
        Field(description="Weight of each class in the loss; balanced: rows / (classes x rows of the class)."),
    ] = "none"


class TokenClassificationOptions(Frozen):
    """Every word gets a tag, as in named entity recognition."""

    label_all_tokens: bool = Field(
        default=False, description="Learn the tag on every piece of a word (B- becomes I-), not on its first alone."
    )
    tag_names: Annotated[
        Annotated[list[LabelName], Field(min_length=1, max_length=1000)] | None,
        Field(description="Names of tags that are numbers in the rows, in order: number i is tag_names[i]."),
    ] = None
    scheme: Literal["auto", "IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU"] = Field(
        default="auto",
        description="How tags spell entities. auto: BILOU where tags begin with L- or U-, else as conlleval reads "
        "them; a scheme by name is applied strictly.",
    )


class PreferenceOptions(Frozen):
    """A causal model learns to prefer one of two replies to the same prompt."""

    loss: Literal["sigmoid", "hinge", "ipo", "robust", "apo_zero", "orpo"] = Field(
        default="sigmoid",
        description="sigmoid is DPO; robust is DPO for labels of which some are wrong; orpo needs no reference model.",
    )
    beta: PositiveNumber = Field(
        default=0.1, description="How strongly the trained model is held to the reference; in orpo the odds' weight."
    )
    label_smoothing: Annotated[
        Annotated[Number, Field(ge=0, lt=0.5)], Field(description="robust alone: the share of pairs that are swapped.")
    ] = 0.0

    @field_validator("label_smoothing")
    @classmethod
    def _is_used(cls, share: float, info: ValidationInfo) -> float:
        if share and info.data.get("loss", "robust") != "robust":
            raise ValueError(f"the loss {info.data['loss']} does not use it; choose the loss robust, or leave it out")
        return share

    @property
    def has_reference(self) -> bool:
        """Whether replies are compared with the model as it was before training."""
        return self.loss != "orpo"


class RewardOptions(Frozen):
    """A model with one output learns to score replies: the preferred one of a pair above the other."""

    center_rewards_coefficient: Annotated[
        Annotated[Number, Field(ge=0)],
        Field(description="Weight of the squared sum of a pair's two scores, which keeps scores around 0; often 0.01."),
    ] = 0.0


AnyOptions = (
    SftOptions
    | PretrainOptions
    | Seq2SeqOptions
    | ClassificationOptions
    | TokenClassificationOptions
    | PreferenceOptions
    | RewardOptions
)
MethodName = Literal["sft", "pretrain", "seq2seq", "classification", "token_classification", "preference", "reward"]
OPTIONS: dict[MethodName, type[AnyOptions]] = {
    "sft": SftOptions,
    "pretrain": PretrainOptions,
    "seq2seq": Seq2SeqOptions,
    "classification": ClassificationOptions,
    "token_classification": TokenClassificationOptions,
    "preference": PreferenceOptions,
    "reward": RewardOptions,
}

_Block = TypeVar("_Block")


class MethodBlocks(Frozen):
    """`method`, and beside it at most the block of that method: what a job's body and a run's config share."""

    method: MethodName = Field(default="sft", description="What is trained; see docs/methods.")
    sft: SftOptions | None = Field(default=None, description="Options of supervised fine-tuning.")
    pretrain: PretrainOptions | None = Field(default=None, description="Options of pretraining.")
    seq2seq: Seq2SeqOptions | None = Field(default=None, description="Options of sequence to sequence.")
    classification: ClassificationOptions | None = Field(default=None, description="Options of classification.")
    token_classification: TokenClassificationOptions | None = Field(
        default=None, description="Options of token classification."
    )
    preference: PreferenceOptions | None = Field(default=None, description="Options of preference training.")
    reward: RewardOptions | None = Field(default=None, description="Options of a reward model.")

    @field_validator(*OPTIONS)
    @classmethod
    def _is_of_the_method(cls, block: _Block, info: ValidationInfo) -> _Block:
        method = info.data.get("method", info.field_name)  # a method that was refused itself is missing here
        if block is not None and info.field_name != method:
            raise ValueError(f"holds options of the method {info.field_name}, and the method is {method}; leave it out")
        return block

    def blocks(self) -> dict[str, Any]:
        """`method` and its block by name, to make another such value of."""
        return {"method": self.method, self.method: getattr(self, self.method)}

    @property
    def options(self) -> AnyOptions:
        """The method's block, with its defaults where none was given."""
        given: AnyOptions | None = getattr(self, self.method)
        return OPTIONS[self.method]() if given is None else given
