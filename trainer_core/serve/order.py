"""What an engine is asked for and how it is spoken to: JSON lines on its standard input and output. Pure.

The engine listens on nothing: whoever started it holds both ends, and when that one goes away its input ends and so
does the engine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from trainer_core.contract import Cause, Frozen, ModelSource
from trainer_core.contract.quantization import Quantization

ORDER_NAME = "serve.json"

FinishReason = Literal["stop", "length", "tool_calls", "cancelled"]
Variant = Literal["tuned", "base"]


class ServeOrder(Frozen):
    """`serve.json`: written by the service, or by hand; `python -m trainer_core serve RUN_DIR` carries it out."""

    version: Literal[1] = 1
    model: ModelSource
    kind: Literal["causal", "seq2seq"] = "causal"
    checkpoint: Path | None = Field(default=None, description="Absolute folder with a complete manifest; null: base.")
    manifest_sha256: str | None = Field(default=None, description="Digest recorded for the checkpoint's manifest.json.")
    quantization: Quantization | None = None
    render: Literal["auto", "plain"] = Field(
        default="auto", description="plain: the prompt as it is, as the rows of the run were."
    )
    device: Literal["cpu", "cuda"] = "cpu"
    idle_s: Annotated[float, Field(gt=0, description="The engine ends after this long without a prompt.")] = 300.0
    max_waiting: Annotated[int, Field(ge=1, description="Prompts that may wait for their turn.")] = 16


class Sampling(Frozen):
    """How a reply is drawn."""

    max_tokens: Annotated[int | None, Field(ge=1, description="Null: 512, or as many as fit.")] = None
    temperature: Annotated[float, Field(ge=0, le=2, description="0: always the likeliest token.")] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    stop: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=4)] = []
    seed: Annotated[int | None, Field(ge=0, le=2**63 - 1)] = None


class Prompt(Frozen):
    """One prompt: messages as OpenAI writes them, with tools if there are any."""

    type: Literal["prompt"] = "prompt"
    id: str
    variant: Variant = "tuned"
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    sampling: Sampling = Sampling()


class Cancel(Frozen):
    type: Literal["cancel"] = "cancel"
    id: str


class Ready(Frozen):
    """The model is loaded. Said once, before anything else but Failed."""

    type: Literal["ready"] = "ready"
    variants: list[Variant]
    context_length: int | None
    notes: list[str] = []


class Failed(Frozen):
    """The model could not be loaded; the engine ends."""

    type: Literal["failed"] = "failed"
    cause: Cause


class Piece(Frozen):
    """The next part of a reply."""

    type: Literal["piece"] = "piece"
    id: str
    text: str


class ToolCall(Frozen):
    name: str
    arguments: str = Field(description="JSON text.")


class Finished(Frozen):
    """A reply is whole."""

    type: Literal["finished"] = "finished"
    id: str
    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    tool_calls: list[ToolCall] = []


class Refused(Frozen):
    """A prompt cannot be answered; the engine goes on."""

    type: Literal["refused"] = "refused"
    id: str
    code: str
    message: str
    param: str | None = None


Word = Annotated[Ready | Failed | Piece | Finished | Refused, Field(discriminator="type")]
Wish = Annotated[Prompt | Cancel, Field(discriminator="type")]
WORDS: TypeAdapter[Ready | Failed | Piece | Finished | Refused] = TypeAdapter(Word)
WISHES: TypeAdapter[Prompt | Cancel] = TypeAdapter(Wish)
