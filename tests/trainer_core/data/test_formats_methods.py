"""Formats of the methods beyond fine-tuning: recognised, checked, and found by a method in richer files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.trainer_core.data.uploads import documented_codes, put, refused
from trainer_core.data.formats import (
    FIELDS,
    METHOD_FORMATS,
    FeedbackExample,
    FormatError,
    LabelExample,
    PreferenceExample,
    PromptExample,
    PromptOnly,
    RowFault,
    TokensExample,
    TrainFormat,
    check_columns,
    check_rows,
    format_for,
    formats_of,
    to_example,
)
from trainer_core.data.report import DatasetReport


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def bot(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


CALLS = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "f"}}]}
READ_CALLS = {
    "role": "assistant", "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}],
}  # fmt: skip
TOOL = {"role": "tool", "content": "r"}
SYSTEM = {"role": "system", "content": "s"}
OPENAI = {"input": {"messages": [user("u")]}, "preferred_output": [bot("a")], "non_preferred_output": [bot("b")]}


def jsonl(*rows: dict[str, Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def report(folder: Path, *rows: dict[str, Any]) -> DatasetReport:
    return put(folder, jsonl(*rows))[0]


def fault(format: TrainFormat, row: dict[str, Any], columns: dict[str, str] | None = None) -> tuple[str, str | None]:
    with pytest.raises(RowFault) as caught:
        to_example(format, columns or {}, row)
    assert caught.value.code in documented_codes()
    return caught.value.code, caught.value.field


def refusal(method: str, found: DatasetReport, columns: dict[str, str] | None = None) -> FormatError:
    with pytest.raises(FormatError) as caught:
        format_for(method, found, columns or {})
    assert caught.value.code in documented_codes()
    return caught.value


# ---------------------------------------------------------------------------------------------------------------------
# Recognition
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "format"),
    [
        ({"prompt": "p", "completion": "c", "label": True}, "feedback"),
        ({"prompt": "p", "completion": "c", "label": "true"}, "prompt_completion"),
        ({"prompt": "p", "completion": "c", "label": 1}, "prompt_completion"),
        ({"prompt": "p", "chosen": "a", "rejected": "b", "text": "t"}, "preference"),
        ({"prompt": "p", "completion": "c", "chosen": "a", "rejected": "b"}, "prompt_completion"),
        ({"chosen": [user("u"), bot("a")], "rejected": [user("u"), bot("b")]}, "preference"),
        ({"chosen": "a", "rejected": "b"}, "columns"),
        (OPENAI, "preference"),
        ({**OPENAI, "prompt": None}, "preference"),
        ({"text": "t", "label": "a"}, "classification"),
        ({"text": "t", "label": 0.5, "text_pair": "u"}, "classification"),
        ({"text": "t", "label": ["a", "b"]}, "classification"),
        ({"text": "t", "label": None}, "text"),
        ({"text": "t", "label": {"a": 1}}, "text"),
        ({"text": "t", "label": [1, 2]}, "text"),
        ({"text": "t", "label": "x" * 257}, "text"),
        ({"tokens": ["a"], "tags": ["O"], "text": "t", "label": "x"}, "token_classification"),
        ({"tokens": 12, "tags": ["x"], "text": "t"}, "text"),
        ({"prompt": "p"}, "prompts"),
        ({"prompt": "p", "answer": 4}, "prompts"),
        ({"prompt": [user("p")]}, "prompts"),
        ({"prompt": {"a": 1}}, "columns"),
        ({"messages": [user("p")], "answer": "4"}, "prompts"),
        ({"conversations": [{"from": "human", "value": "p"}], "answer": "4"}, "prompts"),
        ({"messages": [user("u"), bot("a")], "chosen": "a", "rejected": "b", "prompt": "p"}, "messages"),
    ],
)
def test_formats_are_recognised(tmp_path: Path, row: dict[str, Any], format: str) -> None:
    assert report(tmp_path, row, row).format == format


def test_messages_that_end_with_the_user_and_nothing_to_grade_by_are_a_cut_row(tmp_path: Path) -> None:
    rows = jsonl({"messages": [user("u"), bot("a"), user("u")], "tools": None})
    assert refused(tmp_path, rows).code == "ends_without_reply"
    rows = jsonl({"messages": [user("u")], "tools": []})
    assert refused(tmp_path, rows).code == "no_assistant_turn"


@pytest.mark.parametrize(
    ("weak", "strong"),
    [
        ({"prompt": "p"}, {"prompt": "p", "completion": "c"}),
        ({"prompt": "p", "chosen": "a"}, {"prompt": "p", "chosen": "a", "rejected": "b"}),
        ({"messages": [user("u")], "id": 1}, {"messages": [user("u"), bot("a")], "id": 2}),
    ],
)
def test_a_row_that_only_asks_is_at_fault_among_others(
    tmp_path: Path, weak: dict[str, Any], strong: dict[str, Any]
) -> None:
    problems = refused(tmp_path, jsonl(weak, weak, strong)).problems
    assert [(problem.line, problem.code) for problem in problems] == [(1, "mixed_formats"), (2, "mixed_formats")]
    problems = refused(tmp_path, jsonl(strong, weak)).problems
    assert [problem.line for problem in problems] == [2]


def test_rows_that_lack_a_required_column_are_named(tmp_path: Path) -> None:
    good = {"text": "t", "label": "a"}
    problem = refused(tmp_path, jsonl(good, {"text": "t"})).problems[0]
    assert (problem.code, problem.line) == ("mixed_formats", 2)
    assert "classification needs text and label" in problem.message


# ---------------------------------------------------------------------------------------------------------------------
# Preferences
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "example"),
    [
        ({"prompt": "p", "chosen": "a", "rejected": "b"}, PreferenceExample("p", "a", "b")),
        ({"prompt": "p", "chosen": "a", "rejected": "b", "system": "s"}, PreferenceExample("p", "a", "b", "s")),
        ({"prompt": [user("p")], "chosen": "a", "rejected": [bot("b")]},
         PreferenceExample((user("p"),), (bot("a"),), (bot("b"),))),
        ({"prompt": "p", "chosen": bot("a"), "rejected": bot("b"), "system": "s"},
         PreferenceExample((SYSTEM, user("p")), (bot("a"),), (bot("b"),))),
        ({"prompt": [user("p")], "chosen": [CALLS, TOOL, bot("a")], "rejected": [bot("b")]},
         PreferenceExample((user("p"),), (READ_CALLS, TOOL, bot("a")), (bot("b"),))),
        ({"chosen": [SYSTEM, user("u"), bot("x"), user("v"), bot("a")],
          "rejected": [SYSTEM, user("u"), bot("x"), user("v"), bot("b")]},
         PreferenceExample((SYSTEM, user("u"), bot("x"), user("v")), (bot("a"),), (bot("b"),))),
        ({"prompt": "u", "chosen": [user("u"), bot("a")], "rejected": [user("u"), bot("b")]},
         PreferenceExample((user("u"),), (bot("a"),), (bot("b"),))),
        (OPENAI, PreferenceExample((user("u"),), (bot("a"),), (bot("b"),))),
        ({"input": {"messages": [user("u")], "tools": [{"name": "f"}], "parallel_tool_calls": True},
          "preferred_completion": [bot("a")], "non_preferred_completion": [bot("b")]},
         PreferenceExample((user("u"),), (bot("a"),), (bot("b"),), None,
                           [{"type": "function", "function": {"name": "f"}}])),
        ({"prompt": [{"from": "human", "value": "u"}], "chosen": {"from": "gpt", "value": "a"},
          "rejected": {"from": "gpt", "value": "b"}}, PreferenceExample((user("u"),), (bot("a"),), (bot("b"),))),
    ],
)  # fmt: skip
def test_every_shape_of_a_preference_becomes_one(tmp_path: Path, row: dict[str, Any], example: object) -> None:
    assert to_example("preference", {}, row) == example
    assert report(tmp_path, row).format == "preference"


@pytest.mark.parametrize(
    ("row", "code", "field"),
    [
        ({"prompt": "p", "chosen": "a", "rejected": "a"}, "chosen_is_rejected", "rejected"),
        ({"prompt": [user("p")], "chosen": "a", "rejected": [bot("a")]}, "chosen_is_rejected", "rejected"),
        ({"chosen": [user("u"), bot("a")], "rejected": [user("u"), bot("a")]}, "chosen_is_rejected", "rejected"),
        ({"prompt": "p", "chosen": " ", "rejected": "b"}, "empty_reply", "chosen"),
        ({"prompt": "p", "chosen": "a", "rejected": []}, "empty_reply", "rejected"),
        ({"prompt": "p", "chosen": [bot("")], "rejected": "b"}, "empty_reply", "chosen[0].content"),
        ({"prompt": "p", "chosen": 4, "rejected": "b"}, "reply_not_string", "chosen"),
        ({"prompt": "p", "chosen": "a"}, "missing_field", "rejected"),
        ({"chosen": "a", "rejected": "b"}, "missing_field", "prompt"),
        ({"prompt": 4, "chosen": "a", "rejected": "b"}, "not_string", "prompt"),
        ({"prompt": [user("p"), bot("x")], "chosen": "a", "rejected": "b"}, "ends_with_reply", "prompt"),
        ({"prompt": [user("p")], "chosen": [bot("a"), user("x")], "rejected": "b"}, "ends_without_reply", "chosen"),
        ({"prompt": "p", "chosen": [bot("a"), bot("b")], "rejected": "b"}, "role_order", "chosen[1]"),
        ({"prompt": "p", "chosen": [user("p"), bot("a")], "rejected": [bot("b")]}, "no_shared_prompt", "chosen"),
        ({"chosen": [bot("a")], "rejected": [bot("b")]}, "no_shared_prompt", "prompt"),
        ({"chosen": [user("u"), bot("a")], "rejected": [user("v"), bot("a")]}, "no_shared_prompt", "rejected"),
        ({"chosen": [user("u"), bot("a")], "rejected": [user("u"), bot("a"), user("v"), bot("b")]},
         "no_shared_prompt", "rejected"),
        ({"prompt": "other", "chosen": [user("u"), bot("a")], "rejected": [user("u"), bot("b")]},
         "no_shared_prompt", "prompt"),
        ({**OPENAI, "input": {"tools": []}}, "bad_input", "input"),
        ({**OPENAI, "non_preferred_output": [bot("a")]}, "chosen_is_rejected", "non_preferred_output"),
        ({**OPENAI, "input": {"messages": [bot("u")]}}, "ends_with_reply", "input.messages"),
        ({**OPENAI, "input": {"messages": [user("u")], "tools": 3}}, "bad_tools", "input.tools"),
    ],
)  # fmt: skip
def test_bad_preferences_name_their_field(row: dict[str, Any], code: str, field: str) -> None:
    assert fault("preference", row) == (code, field)


# ---------------------------------------------------------------------------------------------------------------------
# Feedback, labels, tags, prompts
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "row", "example"),
    [
        ("feedback", {"prompt": "p", "completion": "c", "label": False}, FeedbackExample("p", "c", False, None)),
        ("feedback", {"prompt": "p", "completion": "c", "label": 1}, FeedbackExample("p", "c", True, None)),
        ("classification", {"text": "t", "label": "a"}, LabelExample("t", None, "a")),
        ("classification", {"text": "t", "text_pair": "u", "label": 3}, LabelExample("t", "u", 3)),
        ("classification", {"text": "t", "label": ["a", "b"]}, LabelExample("t", None, ("a", "b"))),
        ("classification", {"text": "t", "label": []}, LabelExample("t", None, ())),
        ("token_classification", {"tokens": ["a", "b"], "tags": ["O", "B"]}, TokensExample(("a", "b"), ("O", "B"))),
        ("token_classification", {"tokens": ["a"], "tags": [0]}, TokensExample(("a",), (0,))),
        ("prompts", {"prompt": "p", "answer": 4}, PromptOnly("p", None, {"prompt": "p", "answer": 4})),
        ("prompts", {"prompt": "p", "system": "s"}, PromptOnly("p", "s", {"prompt": "p", "system": "s"})),
        ("prompts", {"messages": [user("p")], "system": "x", "n": 1},
         PromptOnly((user("p"),), None, {"messages": [user("p")], "system": "x", "n": 1})),
    ],
)  # fmt: skip
def test_rows_become_examples(format: TrainFormat, row: dict[str, Any], example: object) -> None:
    assert to_example(format, {}, row) == example


@pytest.mark.parametrize(
    ("format", "row", "code", "field"),
    [
        *(("feedback", {"prompt": "p", "completion": "c", "label": label}, "label_not_boolean", "label")
          for label in ("true", "1", 2, 0.5, None, ["x"])),
        ("feedback", {"prompt": "p", "completion": "", "label": True}, "empty_reply", "completion"),
        ("feedback", {"prompt": "p", "completion": "c"}, "missing_field", "label"),
        *(("classification", {"text": "t", "label": label}, code, field) for label, code, field in (
            (None, "empty_label", "label"), (" ", "empty_label", "label"), ({}, "bad_label", "label"),
            ("x" * 257, "bad_label", "label"), (2**63, "bad_label", "label"), (["a", "a"], "bad_label", "label"),
            (["a", 1], "bad_label", "label[1]"), ([""], "empty_label", "label[0]"),
            (float("nan"), "not_finite", "label"),
        )),
        ("classification", {"text": " ", "label": "a"}, "empty_text", "text"),
        ("classification", {"text": "t", "text_pair": 3, "label": "a"}, "not_string", "text_pair"),
        *(("token_classification", {"tokens": tokens, "tags": tags}, code, field) for tokens, tags, code, field in (
            ("a b", ["O"], "bad_tokens", "tokens"), (["a", 3], ["O", "O"], "bad_tokens", "tokens[1]"),
            (["a", " "], ["O", "O"], "empty_token", "tokens[1]"), ([], [], "empty_text", "tokens"),
            (["a"], ["O", "O"], "length_mismatch", "tags"), (["a"], "O", "bad_tag", "tags"),
            (["a"], [None], "bad_tag", "tags[0]"), (["a"], [True], "bad_tag", "tags[0]"),
            (["a"], [0.0], "bad_tag", "tags[0]"), (["a"], [-1], "bad_tag", "tags[0]"),
            (["a"], [""], "bad_tag", "tags[0]"), (["a", "b"], ["O", 1], "mixed_labels", "tags[1]"),
        )),
        ("prompts", {"prompt": " "}, "empty_prompt", "prompt"),
        ("prompts", {"prompt": 3}, "not_string", "prompt"),
        ("prompts", {"text": "t"}, "missing_field", "prompt"),
        ("prompts", {"prompt": [user("u"), bot("a")]}, "ends_with_reply", "prompt"),
        ("prompts", {"messages": [], "a": 1}, "ends_with_reply", "messages"),
    ],
)  # fmt: skip
def test_bad_rows_name_their_field(format: TrainFormat, row: dict[str, Any], code: str, field: str) -> None:
    assert fault(format, row) == (code, field)


# ---------------------------------------------------------------------------------------------------------------------
# Which method may train on which file
# ---------------------------------------------------------------------------------------------------------------------


def test_every_format_serves_a_method() -> None:
    assert set(FIELDS) == set(get_args(TrainFormat)) == {name for names in METHOD_FORMATS.values() for name in names}


@pytest.mark.parametrize(
    ("row", "formats"),
    [
        ({"prompt": "p", "completion": "c", "label": True}, ["feedback", "prompt_completion", "prompts"]),
        ({"text": "t", "label": "a"}, ["classification", "text"]),
        ({"text": "t", "label": None}, ["text"]),
        ({"prompt": "p", "chosen": "a", "rejected": "b"}, ["preference", "prompts"]),
        ({"messages": [user("u")], "answer": "4"}, ["prompts"]),
        ({"messages": [user("u"), bot("a")], "answer": "4"}, ["messages"]),
        ({"tokens": ["a"], "tags": ["O"], "text": "a"}, ["token_classification", "text"]),
        ({"question": "q"}, []),
    ],
)
def test_a_richer_file_serves_simpler_formats(tmp_path: Path, row: dict[str, Any], formats: list[str]) -> None:
    assert formats_of(report(tmp_path, row)) == formats


@pytest.mark.parametrize(
    ("method", "row", "columns", "format"),
    [
        ("sft", {"text": "t", "label": "a"}, {}, "text"),
        ("pretrain", {"text": "t", "label": "a"}, {}, "text"),
        ("classification", {"text": "t", "label": "a"}, {}, "classification"),
        ("sft", {"prompt": "p", "completion": "c", "label": True}, {}, "prompt_completion"),
        ("preference", {"prompt": "p", "chosen": "a", "rejected": "b"}, {}, "preference"),
        ("reward", {"q": "p", "a": "a", "b": "b"}, {"prompt": "q", "chosen": "a", "rejected": "b"}, "preference"),
        ("sft", {"prompt": "p", "chosen": "a", "rejected": "b"}, {"completion": "chosen"}, "prompt_completion"),
        ("classification", {"v1": "ham", "v2": "x"}, {"text": "v2", "label": "v1"}, "classification"),
        ("token_classification", {"tokens": ["a"], "ner_tags": [0]}, {"tags": "ner_tags"}, "token_classification"),
        ("rl", {"question": "q", "answer": "a"}, {"prompt": "question"}, "prompts"),
        ("rl", {"prompt": "p", "completion": "c"}, {}, "prompts"),
        ("seq2seq", {"a": {"b": {"c": "x"}, "d": "y"}}, {"prompt": "a.b.c", "completion": "a.d"}, "prompt_completion"),
    ],
)
def test_a_method_finds_its_format(
    tmp_path: Path, method: str, row: dict[str, Any], columns: dict[str, str], format: TrainFormat
) -> None:
    assert format_for(method, report(tmp_path, row), columns) == format
    check_rows(tmp_path / "stored.jsonl", format, columns)


@pytest.mark.parametrize(
    ("method", "row", "columns", "code", "field", "words"),
    [
        ("classification", {"text": "t"}, {}, "columns_needed", None, ["classification needs text and label", "text"]),
        ("classification", {"text": "t", "label": None}, {}, "column_type", "label", ["null", "string"]),
        ("preference", {"prompt": "p", "completion": "c", "label": True}, {}, "columns_needed", None,
         ["preference needs"]),
        ("preference", {"chosen": "a", "rejected": "b"}, {}, "columns_needed", None, ["prompt unless"]),
        ("preference", {"chosen": "a", "r": "b"}, {"rejected": "r"}, "missing_column", "prompt", ["no prompt"]),
        ("sft", {"prompt": "p"}, {}, "columns_needed", None, ["prompts", "prompt_completion needs"]),
        ("sft", {"messages": [user("u")], "a": 1}, {}, "columns_needed", None, ["messages"]),
        ("rl", {"messages": [user("u"), bot("a")]}, {}, "columns_needed", None, ["prompts needs prompt"]),
        ("reward", {"prompt": "p", "c": "c", "label": True}, {"completion": "c"}, "mixed_fields", "completion",
         ["preference needs"]),
        ("seq2seq", {"a": {"b": "x"}, "c": "y"}, {"prompt": "c.b", "completion": "a.b"}, "missing_column", "prompt",
         ["holds string"]),
        ("seq2seq", {"a": {"b": "x"}}, {"prompt": "z.b", "completion": "a.b"}, "missing_column", "prompt", ["z.b"]),
        ("sftt", {"text": "t"}, {}, "unknown_method", None, ['did you mean "sft"']),
    ],
)  # fmt: skip
def test_a_file_that_does_not_serve_a_method_is_told(
    tmp_path: Path, method: str, row: dict[str, Any], columns: dict[str, str], code: str, field: str | None,
    words: list[str],
) -> None:  # fmt: skip
    error = refusal(method, report(tmp_path, row), columns)
    assert (error.code, error.field) == (code, field)
    assert [word for word in words if word not in error.message] == []


def test_a_job_may_ask_for_one_of_its_methods_formats(tmp_path: Path) -> None:
    row = {"prompt": "p", "completion": "c", "label": True, "chosen": "a", "rejected": "b"}
    found = report(tmp_path, row)
    assert format_for("preference", found, {}) == "preference"
    assert format_for("preference", found, {}, ("feedback",)) == "feedback"
    assert check_columns(found, {}) == "prompt_completion"


def test_real_translations_are_mapped_by_dotted_paths(tmp_path: Path, shared_data: Path) -> None:
    found, rows = put(tmp_path, (shared_data / "wmt16_sample" / "sample.json").read_bytes())
    columns = {"prompt": "translation.en", "completion": "translation.ro"}
    assert format_for("seq2seq", found, columns) == "prompt_completion"
    check_rows(tmp_path / "stored.jsonl", "prompt_completion", columns)
    example = to_example("prompt_completion", columns, rows[0])
    assert isinstance(example, PromptExample)
    assert example.completion == "Componenţa Parlamentului: a se vedea procesul-verbal"
    assert fault("prompt_completion", rows[0], {**columns, "completion": "translation.de"}) == (
        "missing_field", "translation.de",
    )  # fmt: skip


def test_a_column_named_with_a_dot_goes_before_the_path() -> None:
    row = {"a.b": "name", "a": {"b": "path", "c.d": "both"}}
    assert [to_example("text", {"text": path}, row).text for path in ("a.b", "a.c.d")] == ["name", "both"]


def test_nested_seed_tasks_stay_columns(tmp_path: Path, shared_data: Path) -> None:
    found, _ = put(tmp_path, (shared_data / "self_instruct" / "seed_tasks.jsonl").read_bytes())
    assert (found.format, formats_of(found)) == ("columns", [])
