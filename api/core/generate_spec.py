"""The body of POST /v1/generations: a prompt, who answers it, and how."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from trainer_core.contract import Frozen
from trainer_core.numbers import as_whole
from trainer_core.serve.order import Sampling

Text = Annotated[str, StringConstraints(max_length=1_000_000)]


def _joined(content: object) -> object:
    """Content in parts, as OpenAI's clients may send it, as one text; only text can be answered here."""
    if not isinstance(content, list):
        return content
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise ValueError('expected text, or parts of {"type": "text", "text": ...}; models here read text alone')
        texts.append(part["text"])
    return "".join(texts)


class CalledFunction(Frozen):
    name: str
    arguments: str = Field(description="JSON text.")


class Call(Frozen):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(Frozen):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[Text | None, BeforeValidator(_joined)] = None
    name: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None


class Function(Frozen):
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] = {}
    strict: bool | None = None


class Tool(Frozen):
    type: Literal["function"] = "function"
    function: Function


def _answerable(messages: list[Message]) -> list[Message]:
    if not any(message.content or message.tool_calls for message in messages):
        raise ValueError("expected a message with content")
    return messages


Messages = Annotated[list[Message], Field(min_length=1, max_length=2000), AfterValidator(_answerable)]
Tools = Annotated[list[Tool] | None, Field(min_length=1, max_length=128)]


class GenerateSpec(Sampling):
    """The body of POST /v1/generations."""

    model: str = Field(description="A registered model, a job's id, or a fine-tuned model's name.", examples=["tiny"])
    checkpoint: Annotated[
        Literal["best", "last"] | Annotated[int, Field(ge=1)],
        BeforeValidator(lambda value: value if value in ("best", "last") else as_whole(value)),
        Field(description="Of a job: best, last or a step; best is the last where none is best."),
    ] = "best"
    variant: Literal["tuned", "base"] = Field(
        default="tuned", description="base: the model that the job started from, by the same engine."
    )
    messages: Messages
    tools: Tools = None
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="Where a new engine runs; auto: a free CUDA device, else the CPU."
    )


def plain(messages: list[Message]) -> list[dict[str, Any]]:
    """As a chat template reads them: what was not said is not there."""
    return [message.model_dump(mode="json", exclude_none=True) for message in messages]
