"""The adapters a job can ask for, told apart by `type`, with PEFT's field names; and parts of a model trained alone.

A block without `type` is LoRA's. What goes with what, and with which model, is judged in `trainer_core.model.rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Discriminator, Field, StringConstraints, Tag, model_validator

from trainer_core.contract.job import FieldName
from trainer_core.contract.lora import OWNED_BY_PEFT, Pattern
from trainer_core.contract.lora import LoraAdapter as LoraAdapter
from trainer_core.frozen import Frozen
from trainer_core.numbers import Fraction, PositiveWholeNumber

VirtualTokens = Annotated[PositiveWholeNumber, Field(le=4096, description="Learnt positions before every row.")]
Width = Annotated[PositiveWholeNumber, Field(le=65536)]

_READ_OFF_MODEL = dict.fromkeys(
    ("token_dim", "num_transformer_submodules", "num_attention_heads", "num_layers"), "is read off the model"
)
_PROMPT_REFUSED: dict[str, str] = (
    OWNED_BY_PEFT | _READ_OFF_MODEL | {"modules_to_save": "is not heeded by PEFT for learnt prompts"}
)


class Ia3Adapter(Frozen):
    """IA3: a learnt factor for each output of some modules, or input of feed-forward ones."""

    refused: ClassVar[Mapping[str, str]] = OWNED_BY_PEFT | {
        "fan_in_fan_out": "is read off each layer's type by PEFT (true for GPT-2's Conv1D)"
    }

    type: Literal["ia3"]
    target_modules: Annotated[
        list[FieldName] | Pattern | None, Field(description="Modules to scale; null: PEFT's choice for the model type.")
    ] = None
    feedforward_modules: Annotated[
        list[FieldName] | None, Field(description="Those of target_modules whose input is scaled.")
    ] = None
    exclude_modules: list[FieldName] | Pattern | None = None
    modules_to_save: list[FieldName] | None = Field(default=None, description="Modules trained and saved in full.")
    init_ia3_weights: bool = Field(default=True, description="Start at ones: the model as it is.")

    @model_validator(mode="after")
    def _named_together(self) -> Ia3Adapter:
        targets, forward = self.target_modules, self.feedforward_modules
        if (targets is None) != (forward is None):
            raise ValueError("target_modules and feedforward_modules are given together ([] for none), or left to PEFT")
        if isinstance(targets, list) and forward and (stray := [name for name in forward if name not in targets]):
            raise ValueError(f"feedforward_modules are some of target_modules, found {stray[0]!r} beside them")
        if targets is not None and not targets:
            raise ValueError("an empty target_modules adapts nothing; name modules")
        return self


class PromptTuningAdapter(Frozen):
    """Prompt tuning: learnt embeddings before every row; the model stays as it is."""

    refused: ClassVar[Mapping[str, str]] = _PROMPT_REFUSED | {
        "tokenizer_name_or_path": "is the job's model",
        "tokenizer_kwargs": "follow from the registered model",
    }

    type: Literal["prompt_tuning"]
    num_virtual_tokens: VirtualTokens = 20
    prompt_tuning_init: Literal["RANDOM", "SAMPLE_VOCAB", "TEXT"] = Field(
        default="RANDOM", description="Where they start: random, the embeddings of tokens drawn, or those of a text."
    )
    prompt_tuning_init_text: Annotated[str, StringConstraints(min_length=1, max_length=20_000)] | None = None

    @model_validator(mode="after")
    def _text_where_used(self) -> PromptTuningAdapter:
        if (self.prompt_tuning_init == "TEXT") != (self.prompt_tuning_init_text is not None):
            raise ValueError("prompt_tuning_init TEXT and prompt_tuning_init_text are given together, or neither")
        return self


class PrefixTuningAdapter(Frozen):
    """Prefix tuning: learnt keys and values before every row, in every layer."""

    refused: ClassVar[Mapping[str, str]] = _PROMPT_REFUSED | {
        "init_weights": "is read by PEFT's other classes alone",
    }

    type: Literal["prefix_tuning"]
    num_virtual_tokens: VirtualTokens = 20
    prefix_projection: bool = Field(default=False, description="Learn them through a small network, left out later.")
    encoder_hidden_size: Annotated[Width | None, Field(description="Of that network; null: the width of keys.")] = None

    @model_validator(mode="after")
    def _size_where_used(self) -> PrefixTuningAdapter:
        if self.encoder_hidden_size is not None and not self.prefix_projection:
            raise ValueError("encoder_hidden_size is the projection's, and prefix_projection is false")
        return self


class PTuningAdapter(Frozen):
    """P-tuning: the learnt embeddings come out of a small network, which is left out at the end."""

    refused: ClassVar[Mapping[str, str]] = _PROMPT_REFUSED

    type: Literal["p_tuning"]
    num_virtual_tokens: VirtualTokens = 20
    encoder_reparameterization_type: Literal["MLP", "LSTM"] = "MLP"
    encoder_hidden_size: Annotated[Width | None, Field(description="Of the network; null: the model's width.")] = None
    encoder_num_layers: Annotated[PositiveWholeNumber, Field(le=16, description="Of an LSTM; an MLP has two.")] = 2
    encoder_dropout: Annotated[Fraction, Field(description="Of an LSTM.")] = 0.0

    @model_validator(mode="after")
    def _lstm_where_used(self) -> PTuningAdapter:
        if self.encoder_reparameterization_type == "MLP" and (self.encoder_num_layers != 2 or self.encoder_dropout):
            raise ValueError("encoder_num_layers and encoder_dropout are an LSTM's; PEFT's MLP has two layers and none")
        return self


class FreezeAdapter(Frozen):
    """No adapter: some of the model's own blocks are trained, all else stands still. Saved as a whole model."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)

    type: Literal["freeze"]
    trainable_layers: Annotated[PositiveWholeNumber, Field(le=10_000, description="Blocks to train, of each stack.")]
    side: Literal["last", "first"] = Field(default="last", alias="from", description="Which end they are counted from.")
    train_embeddings: bool = Field(default=False, description="The input embeddings too.")
    train_head: bool = Field(
        default=False, description="The last norm and the output layer too; tied embeddings count as embeddings."
    )


PromptAdapter = PromptTuningAdapter | PrefixTuningAdapter | PTuningAdapter
PeftAdapter = LoraAdapter | Ia3Adapter | PromptTuningAdapter | PrefixTuningAdapter | PTuningAdapter
AnyAdapter = PeftAdapter | FreezeAdapter


def _type_of(value: Any) -> str | None:
    if isinstance(value, Mapping):
        found = value.get("type", "lora")
        return found if isinstance(found, str) else None
    return getattr(value, "type", None)


Adapter = Annotated[
    Annotated[LoraAdapter, Tag("lora")]
    | Annotated[Ia3Adapter, Tag("ia3")]
    | Annotated[PromptTuningAdapter, Tag("prompt_tuning")]
    | Annotated[PrefixTuningAdapter, Tag("prefix_tuning")]
    | Annotated[PTuningAdapter, Tag("p_tuning")]
    | Annotated[FreezeAdapter, Tag("freeze")],
    Discriminator(_type_of),
]
"""The field's type: a block with a `type`."""


def peft_part(adapter: AnyAdapter | None) -> PeftAdapter | None:
    """The adapter where PEFT puts one on the model and only it is saved; null where whole weights are saved."""
    return None if isinstance(adapter, FreezeAdapter) else adapter


def describe(adapter: AnyAdapter | None) -> str:
    """One phrase for people: what is trained."""
    if adapter is None:
        return "all weights"
    if isinstance(adapter, LoraAdapter):
        kinds = {"DoRA": adapter.use_dora, "rsLoRA": adapter.use_rslora, "LoRA+": adapter.loraplus_lr_ratio is not None}
        name = ", ".join(kind for kind, is_used in kinds.items() if is_used) or "LoRA"
        return f"{name} r={adapter.r}, alpha={adapter.lora_alpha}"
    if isinstance(adapter, FreezeAdapter):
        return f"the {adapter.side} {adapter.trainable_layers} blocks"
    if isinstance(adapter, PromptAdapter):
        return f"{adapter.type.replace('_', ' ')} with {adapter.num_virtual_tokens} virtual tokens"
    return "IA3"
