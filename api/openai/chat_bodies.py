"""The body of a chat completion as OpenAI's clients send it. What is not here is refused by its name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from api.core.asking import Question
from api.core.errors import Invalid
from api.core.generate_spec import Messages, Tools, plain
from trainer_core.contract import Frozen
from trainer_core.serve.order import Sampling

Stops = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=200)]],
    Field(max_length=4),
    BeforeValidator(lambda value: [] if value is None else [value] if isinstance(value, str) else value),
]
Count = Annotated[int | None, Field(ge=1)]


class StreamOptions(Frozen):
    include_usage: bool = False


class TextFormat(Frozen):
    type: Literal["text"]


class ChatBody(Frozen):
    model: str
    messages: Messages
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: Count = None
    max_completion_tokens: Count = None
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    stop: Stops = []
    seed: Annotated[int | None, Field(ge=0, le=2**63 - 1)] = None
    n: Annotated[Literal[1] | None, Field(description="One reply a request.")] = None
    tools: Tools = None
    tool_choice: Annotated[
        Literal["auto", "none"] | None, Field(description="A call cannot be forced upon a model of one's own.")
    ] = None
    response_format: TextFormat | None = None
    user: str | None = Field(default=None, description="Taken and not used.")

    def question(self) -> Question:
        """Raises Invalid where two parameters say the same in two ways."""
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            message = "max_tokens: max_completion_tokens says the same; send one of them"
            raise Invalid(message, param="max_tokens")
        if self.stream_options is not None and not self.stream:
            raise Invalid("stream_options: only a stream has options; set stream", param="stream_options")
        sampling: dict[str, Any] = {"stop": self.stop, "seed": self.seed}
        sampling["max_tokens"] = self.max_completion_tokens or self.max_tokens
        for name in ("temperature", "top_p"):
            if getattr(self, name) is not None:
                sampling[name] = getattr(self, name)
        tools = [] if self.tool_choice == "none" else [tool.model_dump(mode="json") for tool in self.tools or []]
        return Question(plain(self.messages), Sampling.model_validate(sampling), tools or None)
