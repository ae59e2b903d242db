"""Token ids and labels of rows: what is learnt is decoded again, bos comes once, and what is cut is counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny import CHAT_TEMPLATE, make_tiny
from tests.trainer_core.data.templates import SPECIAL_TOKENS, TEMPLATES
from trainer_core.contract import CauseCode, DataSource, ModelSource
from trainer_core.data.encode import IGNORED, Encoded, Encoder
from trainer_core.data.examples import ChatExample, Example, PromptExample, TextExample
from trainer_core.data.formats import to_example
from trainer_core.data.stored import read_rows
from trainer_core.data.template import TemplateRefusal
from trainer_core.model.tokenizer import LoadedTokenizer, load_tokenizer
from trainer_core.run.faults import Fault

EMOJI = "whole 🦆, family 👩‍👩‍👧, sign ☺️, flag 🇷🇴, ș"


def _load(folder: Path) -> LoadedTokenizer:
    return load_tokenizer(ModelSource(name="tiny", source=str(folder)))


@pytest.fixture(scope="module")
def tiny(tiny_model: Path) -> LoadedTokenizer:
    return _load(tiny_model)


def _encode(loaded: LoadedTokenizer, example: Example, **data: Any) -> list[Encoded]:
    formats = {ChatExample: "messages", PromptExample: "prompt_completion", TextExample: "text"}
    source = DataSource(train=Path("/none"), format=formats[type(example)], **data)
    encoder = Encoder(loaded, source)
    return next(encoder.encode([encoder.draft(example)]))


def _learnt(loaded: LoadedTokenizer, sequence: Encoded) -> str:
    return str(loaded.tokenizer.decode([label for label in sequence.labels if label != IGNORED]))


def _text(loaded: LoadedTokenizer, sequence: Encoded) -> str:
    return str(loaded.tokenizer.decode(list(sequence.ids)))


def _chat(*turns: tuple[str, str]) -> ChatExample:
    messages = tuple({"role": role, "content": content} for role, content in turns)
    return ChatExample(messages, None, tuple(role == "assistant" for role, _ in turns))


# ---------------------------------------------------------------------------------------------------------------------
# Conversations
# ---------------------------------------------------------------------------------------------------------------------


def test_a_conversation_learns_its_replies_and_their_eos(tiny: LoadedTokenizer) -> None:
    [sequence] = _encode(
        tiny, _chat(("system", "s"), ("user", "q1"), ("assistant", "a1"), ("user", "q2"), ("assistant", "a2"))
    )
    assert _learnt(tiny, sequence) == "a1</s>a2</s>"
    assert len(sequence.ids) == len(sequence.labels)
    assert all(label in (IGNORED, id_) for id_, label in zip(sequence.ids, sequence.labels, strict=True))


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_ids_are_those_of_the_template_and_bos_comes_once(tmp_path: Path, name: str) -> None:
    loaded = _load(make_tiny(tmp_path, chat_template=TEMPLATES[name], extra_tokens=SPECIAL_TOKENS[name]))
    example = _chat(("user", "q1 é"), ("assistant", EMOJI))
    [sequence] = _encode(loaded, example)
    expected = loaded.tokenizer.apply_chat_template(list(example.messages), return_dict=False)
    assert list(sequence.ids)[: len(expected) - 2] == expected[:-2]  # the end may be closed by us
    assert list(sequence.ids).count(loaded.tokenizer.bos_token_id) == TEMPLATES[name].count("bos_token")
    assert EMOJI in _learnt(loaded, sequence)
    assert "q1" not in _learnt(loaded, sequence)


def test_the_tiny_template_and_the_tokenizer_would_both_add_bos(tiny: LoadedTokenizer) -> None:
    bos = tiny.tokenizer.bos_token_id
    text = tiny.tokenizer.apply_chat_template([{"role": "user", "content": "q"}], tokenize=False)
    assert tiny.tokenizer(text).input_ids[:2] == [bos, bos]  # the trap
    [sequence] = _encode(tiny, _chat(("user", "q"), ("assistant", "a")))
    assert sequence.ids[0] == bos != sequence.ids[1]


def test_a_token_over_the_border_of_a_reply_is_learnt_with_it(tmp_path: Path) -> None:
    # The line feed that ends the header and the one that starts the reply are one token.
    tokens = SPECIAL_TOKENS["chatml"]
    loaded = _load(make_tiny(tmp_path, chat_template=TEMPLATES["chatml"], extra_tokens=tokens, merges=[("Ċ", "Ċ")]))
    [sequence] = _encode(loaded, _chat(("user", "q"), ("assistant", "\n\nabc")))
    assert _learnt(loaded, sequence) == "\n\n\nabc<|im_end|>"


def test_messages_without_a_chat_template_are_refused(tmp_path: Path) -> None:
    loaded = _load(make_tiny(tmp_path, chat_template=False))
    with pytest.raises(Fault, match="no chat template") as caught:
        _encode(loaded, _chat(("user", "q"), ("assistant", "a")))
    assert caught.value.cause.code == CauseCode.CONFIG_INVALID
    assert "chat_template.jinja" in str(caught.value.cause.hint)


# ---------------------------------------------------------------------------------------------------------------------
# Tool calls
# ---------------------------------------------------------------------------------------------------------------------


def _with_parsed_arguments(row: dict[str, Any]) -> dict[str, Any]:
    row = json.loads(json.dumps(row))
    for message in row["messages"]:
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
            message["content"] = None
    return row


@pytest.mark.parametrize("name", ["tiny", "mistral", "qwen3"])
def test_both_forms_of_arguments_give_the_same_ids(tmp_path: Path, shared_data: Path, name: str) -> None:
    tokens = SPECIAL_TOKENS.get(name, ())
    loaded = _load(make_tiny(tmp_path, chat_template=TEMPLATES.get(name, CHAT_TEMPLATE), extra_tokens=tokens))
    rows = [row.value for row in read_rows(shared_data / "openai_cookbook" / "drone_training.jsonl")]
    encoder = Encoder(loaded, DataSource(train=Path("/none"), format="messages", max_length=16384))
    as_text = [encoder.draft(to_example("messages", {}, row)) for row in rows]
    as_object = [encoder.draft(to_example("messages", {}, _with_parsed_arguments(row))) for row in rows]
    assert len(as_text) == 103
    for [one], [other] in zip(encoder.encode(as_text), encoder.encode(as_object), strict=True):
        assert (one.ids, one.labels) == (other.ids, other.labels)
        learnt = _learnt(loaded, one)
        call = json.loads(learnt[learnt.index('{"name"') : learnt.rindex("}") + 1].removesuffix("]"))
        assert isinstance(call["arguments"], dict)
        assert "None" not in learnt
        assert '\\"' not in learnt
    assert "takeoff_drone" in as_text[0].text[slice(*as_text[0].spans[0])]


# ---------------------------------------------------------------------------------------------------------------------
# Prompt and completion, text
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("render", "has_template", "text"),
    [
        ("auto", True, "<s><|im_start|>user\nq</s>\n<|im_start|>assistant\n{{name}}</s>\n"),
        ("chat", True, "<s><|im_start|>user\nq</s>\n<|im_start|>assistant\n{{name}}</s>\n"),
        ("auto", False, "<s>q{{name}}</s>"),
        ("plain", True, "<s>q{{name}}</s>"),
    ],
)
def test_prompt_and_completion_are_rendered_as_asked(
    tmp_path: Path, render: str, has_template: bool, text: str
) -> None:
    loaded = _load(make_tiny(tmp_path, chat_template=has_template))
    [sequence] = _encode(loaded, PromptExample("q", "{{name}}", None), render=render)
    assert _text(loaded, sequence) == text
    assert _learnt(loaded, sequence) == "{{name}}</s>"


def test_a_system_text_goes_first_in_both_renderings(tiny: LoadedTokenizer) -> None:
    [chat] = _encode(tiny, PromptExample("q", "a", "be kind"))
    assert _text(tiny, chat).startswith("<s><|im_start|>system\nbe kind</s>")
    [plain] = _encode(tiny, PromptExample("q", "a", "be kind"), render="plain")
    assert _text(tiny, plain) == "<s>be kind\n\nqa</s>"
    assert _learnt(tiny, plain) == "a</s>"


def test_chat_rendering_without_a_template_is_refused(tmp_path: Path) -> None:
    loaded = _load(make_tiny(tmp_path, chat_template=False))
    with pytest.raises(Fault, match="no chat template"):
        _encode(loaded, PromptExample("q", "a", None), render="chat")


def test_a_prompt_is_tokenised_as_it_will_be_alone(tmp_path: Path) -> None:
    loaded = _load(make_tiny(tmp_path, chat_template=False, merges=[("=", "4"), ("4", "2")]))
    assert len(loaded.tokenizer("=42").input_ids) == 3  # bos, "=", "42": joined, or "=4", "2"
    [sequence] = _encode(loaded, PromptExample("2+2=", "4", None))
    prompt = loaded.tokenizer("2+2=").input_ids
    assert list(sequence.ids)[: len(prompt)] == prompt
    assert _text(loaded, sequence) == "<s>2+2=4</s>"
    assert _learnt(loaded, sequence) == "4</s>"


def test_a_text_that_says_bos_itself_gets_no_second_one(tiny: LoadedTokenizer) -> None:
    [sequence] = _encode(tiny, TextExample("<s>once"))
    assert _text(tiny, sequence) == "<s>once</s>"


def test_a_text_is_learnt_whole(tiny: LoadedTokenizer) -> None:
    [sequence] = _encode(tiny, TextExample(EMOJI))
    assert _learnt(tiny, sequence) == f"{EMOJI}</s>"
    assert sequence.labels[0] == IGNORED


@given(
    text=st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=80), size=st.integers(8, 20)
)
@settings(max_examples=60, deadline=None)
def test_windows_of_a_long_text_learn_every_token_once(tiny: LoadedTokenizer, text: str, size: int) -> None:
    windows = _encode(tiny, TextExample(text), max_length=size)
    assert "".join(_learnt(tiny, window) for window in windows) == f"{text}</s>"
    assert all(2 <= len(window.ids) <= size and not window.is_truncated for window in windows)


# ---------------------------------------------------------------------------------------------------------------------
# Cutting
# ---------------------------------------------------------------------------------------------------------------------


def test_a_long_conversation_is_cut_on_the_right_and_counted(tiny: LoadedTokenizer) -> None:
    example = _chat(("user", "q"), ("assistant", "a" * 100))
    [whole] = _encode(tiny, example)
    [cut] = _encode(tiny, example, max_length=40)
    assert list(cut.ids) == list(whole.ids)[:40]
    assert list(cut.labels) == list(whole.labels)[:40]
    assert cut.is_truncated
    assert cut.n_dropped_tokens == len(whole.ids) - 40
    assert not whole.is_truncated


def test_a_row_cut_before_its_reply_has_nothing_learnt(tiny: LoadedTokenizer) -> None:
    [sequence] = _encode(tiny, _chat(("user", "q" * 100), ("assistant", "a")), max_length=50)
    assert sequence.n_learnt == 0


# ---------------------------------------------------------------------------------------------------------------------
# Every accepted form of a conversation
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "turns",
    [
        [("system", "s"), ("assistant", "a")],
        [("assistant", "a"), ("user", "q"), ("assistant", "b")],
        [("user", "q"), ("assistant", "a")],
        [("system", "s"), ("user", "q"), ("assistant", "a"), ("user", "r"), ("assistant", "b")],
    ],
)
def test_every_accepted_order_of_roles_trains(tiny: LoadedTokenizer, turns: list[tuple[str, str]]) -> None:
    row = {"messages": [{"role": role, "content": content} for role, content in turns]}
    [sequence] = _encode(tiny, to_example("messages", {}, row))
    assert _learnt(tiny, sequence) == "".join(f"{content}</s>" for role, content in turns if role == "assistant")


def test_a_refusal_by_the_template_reaches_the_caller(tmp_path: Path) -> None:
    loaded = _load(make_tiny(tmp_path, chat_template=TEMPLATES["gemma"], extra_tokens=SPECIAL_TOKENS["gemma"]))
    encoder = Encoder(loaded, DataSource(train=Path("/none"), format="messages"))
    draft: Callable[[Example], Any] = encoder.draft
    with pytest.raises(TemplateRefusal, match="System role not supported"):
        draft(_chat(("system", "s"), ("user", "q"), ("assistant", "a")))
