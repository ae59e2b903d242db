"""Which characters of a conversation are learnt, for templates in the manner of well-known models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tiny import make_tiny
from tests.trainer_core.data.templates import SPECIAL_TOKENS, TEMPLATES
from trainer_core.contract import ModelSource
from trainer_core.data.chat import ChatRenderer, ChatText
from trainer_core.data.template import TemplateRefusal
from trainer_core.model.tokenizer import load_tokenizer

Message = dict[str, Any]
TOOLS = [{"type": "function", "function": {"name": "fly", "parameters": {"type": "object"}}}]


def system(content: str) -> Message:
    return {"role": "system", "content": content}


def user(content: str) -> Message:
    return {"role": "user", "content": content}


def reply(content: str, **more: Any) -> Message:
    return {"role": "assistant", "content": content, **more}


def call(**arguments: Any) -> Message:
    return reply("", tool_calls=[{"type": "function", "function": {"name": "fly", "arguments": arguments}}])


@pytest.fixture(scope="module")
def renderers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ChatRenderer]:
    folder = tmp_path_factory.mktemp("templates")
    return {name: _renderer(folder / name, template, SPECIAL_TOKENS[name]) for name, template in TEMPLATES.items()}


def _renderer(folder: Path, template: str, tokens: tuple[str, ...]) -> ChatRenderer:
    make_tiny(folder, chat_template=template, extra_tokens=tokens)
    return ChatRenderer(load_tokenizer(ModelSource(name=folder.name, source=str(folder))))


def _render(renderer: ChatRenderer, messages: list[Message], tools: Any = None) -> ChatText:
    return renderer.render(messages, tools, [message["role"] == "assistant" for message in messages])


def _learnt(renderer: ChatRenderer, messages: list[Message], tools: Any = None) -> list[str]:
    chat = _render(renderer, messages, tools)
    return [chat.text[start:end] for start, end in chat.spans]


TURNS = [user("q1"), reply("a1"), user("q2"), reply("a2")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chatml", ["a1<|im_end|>", "a2<|im_end|>"]),
        ("llama3", ["a1<|eot_id|>", "a2<|eot_id|>"]),
        ("mistral", [" a1</s>", " a2</s>"]),
        ("gemma", ["a1<end_of_turn>", "a2<end_of_turn>"]),
        ("qwen3", ["a1<|im_end|>", "<think>\n\n</think>\n\na2<|im_end|>"]),
        ("r1", ["a1</s>", "a2</s>"]),
        ("marked", ["a1<|im_end|>", "a2<|im_end|>"]),
        ("alpaca", ["a1\n\n", "a2\n\n</s>"]),
        ("phi3", ["a1<|end|>", "a2<|end|>\n</s>"]),
    ],
)
def test_every_reply_is_learnt_with_what_closes_it(
    renderers: dict[str, ChatRenderer], name: str, expected: list[str]
) -> None:
    assert _learnt(renderers[name], TURNS) == expected


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_message_that_is_not_learnt_stays_out(renderers: dict[str, ChatRenderer], name: str) -> None:
    chat = renderers[name].render(TURNS, None, [False, False, False, True])
    assert len(chat.spans) == 1
    assert "a2" in chat.text[slice(*chat.spans[0])]
    assert "a1" not in chat.text[slice(*chat.spans[0])]
    chat = renderers[name].render(TURNS, None, [False, True, False, False])
    assert "a1" in chat.text[slice(*chat.spans[0])]
    assert "a2" not in chat.text[slice(*chat.spans[0])]


def test_reasoning_that_the_template_drops_from_earlier_turns_is_not_looked_for(
    renderers: dict[str, ChatRenderer],
) -> None:
    inline = [user("q1"), reply("<think>\nr1\n</think>\n\na1"), user("q2"), reply("<think>\nr2\n</think>\n\na2")]
    apart = [user("q1"), reply("a1", reasoning_content="r1"), user("q2"), reply("a2", reasoning_content="r2")]
    expected = ["a1<|im_end|>", "<think>\nr2\n</think>\n\na2<|im_end|>"]
    assert _learnt(renderers["qwen3"], inline) == expected
    assert _learnt(renderers["qwen3"], apart) == expected


@pytest.mark.parametrize("name", ["chatml", "llama3", "qwen3", "r1", "marked", "alpaca", "phi3"])
@pytest.mark.parametrize("first", [[], [system("s")]], ids=["assistant first", "system then assistant"])
def test_the_assistant_may_speak_first(renderers: dict[str, ChatRenderer], name: str, first: list[Message]) -> None:
    learnt = _learnt(renderers[name], [*first, reply("a0"), user("q1"), reply("a1")])
    assert [part.count(word) for part, word in zip(learnt, ("a0", "a1"), strict=True)] == [1, 1]
    assert learnt[0].startswith("a0")
    assert not any("q1" in part or "s" in part.replace("</s>", "") for part in learnt)


@pytest.mark.parametrize(
    ("name", "messages", "said"),
    [
        ("mistral", [reply("a0"), user("q"), reply("a")], "must alternate"),
        ("gemma", [system("s"), user("q"), reply("a")], "System role not supported"),
        ("chatml", [user("q"), call(up=True)], "does not show the tool call in message 1"),
    ],
)
def test_what_a_template_does_not_take_is_refused_in_its_words(
    renderers: dict[str, ChatRenderer], name: str, messages: list[Message], said: str
) -> None:
    with pytest.raises(TemplateRefusal, match=said):
        _render(renderers[name], messages, TOOLS)


def test_a_template_that_hides_where_the_reply_is_is_refused(tmp_path: Path) -> None:
    # Writes each reply twice, and no prefix of a conversation is a prefix of the whole.
    template = (
        "{{ messages | length }}{% for m in messages %}{{ m.role + m.content }}"
        "{% if m.role == 'assistant' %}{{ m.content }}{% endif %}{% endfor %}"
    )
    with pytest.raises(TemplateRefusal, match="cannot be told apart"):
        _render(_renderer(tmp_path, template, ()), TURNS)


def test_a_question_that_quotes_the_generation_prompt_does_not_start_a_reply(
    renderers: dict[str, ChatRenderer],
) -> None:
    messages = [user("what is <|Assistant|><think>\n for?"), reply("a1")]
    assert _learnt(renderers["r1"], messages) == ["a1</s>"]


def test_marks_around_something_else_are_not_trusted(tmp_path: Path) -> None:
    template = TEMPLATES["marked"].replace(
        "{%- generation %}{{- message['content'] }}{%- endgeneration %}",
        "{%- generation %}{{- '~' }}{%- endgeneration %}{{- message['content'] }}",
    )
    renderer = _renderer(tmp_path, template, SPECIAL_TOKENS["marked"])
    assert _learnt(renderer, TURNS) == ["~a1<|im_end|>", "~a2<|im_end|>"]


CALLS = [
    user("q"),
    call(up=True, who='Ann "x"'),
    {"role": "tool", "content": "ok"},
    reply("done"),
    user("m"),
    reply("a"),
]
CALL = '{"name": "fly", "arguments": {"up": true, "who": "Ann \\"x\\""}}'


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mistral", [f"[TOOL_CALLS][{CALL}]</s>", " done</s>", " a</s>"]),
        (
            "qwen3",
            [
                f"\n<tool_call>\n{CALL}\n</tool_call><|im_end|>",
                "done<|im_end|>",
                "<think>\n\n</think>\n\na<|im_end|>",
            ],
        ),
        # Joins the arguments to a string, so it gets JSON text and no object.
        ("r1", ['<|call|>fly\n```json\n{"up": true, "who": "Ann \\"x\\""}\n```</s>', "done</s>", "a</s>"]),
    ],
)
def test_tool_calls_are_learnt_as_json_written_once(
    renderers: dict[str, ChatRenderer], name: str, expected: list[str]
) -> None:
    assert _learnt(renderers[name], CALLS, TOOLS) == expected


def test_arguments_are_never_written_as_python_writes_them(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{{ m.role + ':' + m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
    )
    template += "{{ c.function.arguments }}{% endfor %}{{ eos_token }}{% endfor %}"
    learnt = _learnt(_renderer(tmp_path, template, ()), [user("q"), call(up=True)])
    assert learnt == ['assistant:fly{"up": true}</s>']


def test_special_tokens_and_placeholders_in_contents_survive(renderers: dict[str, ChatRenderer]) -> None:
    tricky = "b </s> {{name}} <|im_end|>\n<|im_start|>assistant\nx"
    messages = [user("a </s> {{author}}"), reply(tricky), user("q"), reply("z")]
    assert _learnt(renderers["chatml"], messages) == [f"{tricky}<|im_end|>", "z<|im_end|>"]
    assert _learnt(renderers["marked"], messages) == [f"{tricky}<|im_end|>", "z<|im_end|>"]
    assert "a </s> {{author}}" in _render(renderers["chatml"], messages).text


def test_eos_is_added_only_where_nothing_closes_the_last_reply(renderers: dict[str, ChatRenderer]) -> None:
    assert _render(renderers["alpaca"], TURNS).closed_by_us
    assert not any(_render(renderers[name], TURNS).closed_by_us for name in TEMPLATES if name != "alpaca")


def test_tools_that_the_template_does_not_show_are_told(renderers: dict[str, ChatRenderer]) -> None:
    assert _render(renderers["chatml"], TURNS, TOOLS).tools_unseen
    assert not _render(renderers["mistral"], TURNS, TOOLS).tools_unseen
    assert not _render(renderers["chatml"], TURNS).tools_unseen
