"""Chat completions by the official client, strictly validated; a stand-in answers in place of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from tests.api.http.answerer import FINISHED, Answerer
from tests.api.openai.conftest import Service

HELLO: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Say 7"}]}]
TOOLS: list[Any] = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
CALLED = FINISHED | {"finish_reason": "tool_calls", "tool_calls": [{"name": "weather", "arguments": "{}"}]}


@pytest.fixture
def answer(service: Service) -> Iterator[Callable[..., Answerer]]:
    made: list[Answerer] = []

    def make(*args: Any, **named: Any) -> Answerer:
        made.append(Answerer(service.database, *args, **named))
        return made[-1]

    yield make
    for answerer in made:
        answerer.close()


def test_a_whole_reply(client: openai.OpenAI, answer: Callable[..., Answerer]) -> None:
    answerer = answer()
    reply = client.chat.completions.create(
        model="org/tiny", messages=HELLO, max_completion_tokens=9, temperature=0, stop="END", seed=4
    )
    assert (reply.model, reply.choices[0].message.content) == ("org/tiny", "It is 7.")
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (12, 5, 17)
    [prompt] = answerer.prompts
    assert prompt["variant"] == "base"
    assert prompt["messages"] == [{"role": "user", "content": "Say 7"}]
    assert prompt["sampling"] == {"max_tokens": 9, "temperature": 0, "top_p": 1, "stop": ["END"], "seed": 4}


def test_a_streamed_reply(client: openai.OpenAI, answer: Callable[..., Answerer]) -> None:
    answer()
    chunks = list(
        client.chat.completions.create(
            model="org/tiny", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "It is 7."
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 17
    assert len({chunk.id for chunk in chunks}) == 1


def test_tool_calls(client: openai.OpenAI, answer: Callable[..., Answerer]) -> None:
    answer(pieces=(), outcome=CALLED)
    choice = client.chat.completions.create(model="org/tiny", messages=HELLO, tools=TOOLS).choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].function.name == "weather"  # type: ignore[union-attr]
    chunks = list(client.chat.completions.create(model="org/tiny", messages=HELLO, tools=TOOLS, stream=True))
    [call] = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert (call.index, call.function and call.function.name) == (0, "weather")


@pytest.mark.parametrize("stream", [True, False])
def test_too_long_a_prompt_is_a_400(client: openai.OpenAI, answer: Callable[..., Answerer], stream: bool) -> None:
    code = "context_length_exceeded"
    answer(outcome={"code": code, "message": "messages: too long", "param": "messages"})
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="org/tiny", messages=HELLO, stream=stream)
    assert (refused.value.code, refused.value.param, refused.value.type) == (code, "messages", "invalid_request_error")


@pytest.mark.parametrize(
    ("param", "value"),
    [("logprobs", True), ("n", 2), ("frequency_penalty", 0.5), ("logit_bias", {}), ("response_format", {"type": "x"})],
)
def test_what_is_not_supported_is_refused_by_name(client: openai.OpenAI, param: str, value: Any) -> None:
    asked: dict[str, Any] = {"model": "org/tiny", "messages": HELLO, "extra_body": {param: value}}
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**asked)
    assert param in refused.value.message
    assert str(refused.value.param).startswith(param)


def test_models_that_are_not_there(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="org/tinny", messages=HELLO)
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    assert "org/tiny" in missing.value.message


def test_an_unfinished_model_is_said_to_be(client: openai.OpenAI, create: Callable[..., Any]) -> None:
    job = create()
    name = f"ft:org/tiny:trainyard::{job.id.removeprefix('ftjob-')}"
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=name, messages=HELLO)
    assert refused.value.code == "model_not_ready"


def test_no_node_is_a_503_that_says_when_to_come_back(service: Service, client: openai.OpenAI) -> None:
    object.__setattr__(service.settings, "engine_wait_s", 0.3)
    with pytest.raises(openai.InternalServerError) as refused:
        client.chat.completions.create(model="org/tiny", messages=HELLO)
    assert (refused.value.status_code, refused.value.code) == (503, "no_free_device")
    assert refused.value.response.headers["retry-after"] == "2"


def test_a_full_queue_is_a_429(service: Service, client: openai.OpenAI) -> None:
    object.__setattr__(service.settings, "engine_queue", 0)
    with pytest.raises(openai.RateLimitError) as refused:
        client.chat.completions.create(model="org/tiny", messages=HELLO)
    assert (refused.value.code, refused.value.response.headers["retry-after"]) == ("engine_busy", "5")
