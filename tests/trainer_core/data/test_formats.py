"""Formats: recognised by content, mapped by a job, and turned into examples; real public files as they are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from trainer_core.data.formats import (
    ChatExample,
    FormatError,
    PromptExample,
    RowFault,
    TextExample,
    TrainFormat,
    check_columns,
    check_rows,
    to_example,
)
from trainer_core.data.rows import DatasetReport, UploadRefused, normalise, read_rows


def store(folder: Path, *rows: dict[str, Any]) -> tuple[DatasetReport, Path]:
    source = folder / "upload"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return normalise(source, folder / "stored.jsonl"), folder / "stored.jsonl"


def fault(format: TrainFormat, row: dict[str, Any], columns: dict[str, str] | None = None) -> tuple[str, str | None]:
    with pytest.raises(RowFault) as caught:
        to_example(format, columns or {}, row)
    return caught.value.code, caught.value.field


# ---------------------------------------------------------------------------------------------------------------------
# Real files
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "format", "n_rows", "n_with_tools", "columns"),
    [
        ("llamafactory/identity.json", "instruction", 91, 0, {"instruction", "input", "output"}),
        ("llamafactory/c4_demo.jsonl", "text", 300, 0, {"text"}),
        ("llamafactory/glaive_toolcall_en_demo.json", "messages", 300, 191, {"conversations", "tools"}),
        ("openai_cookbook/drone_training.jsonl", "messages", 103, 103, {"messages", "tools", "parallel_tool_calls"}),
        ("openai_cookbook/toy_chat_fine_tuning.jsonl", "messages", 5, 0, {"messages"}),
        ("gsm8k/test.jsonl", "columns", 1319, 0, {"question", "answer"}),
        ("gsm8k/train_first1000.jsonl", "columns", 1000, 0, {"question", "answer"}),
        ("self_instruct/seed_tasks.jsonl", "columns", 175, 0,
         {"id", "name", "instruction", "instances", "is_classification"}),
        ("wmt16_sample/sample.json", "columns", 10, 0, {"translation"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("extension", ["jsonl", "json"])
def test_real_files_are_recognised_by_content(
    tmp_path: Path, shared_data: Path, name: str, format: str, n_rows: int, n_with_tools: int, columns: set[str],
    extension: str,
) -> None:  # fmt: skip
    source = tmp_path / f"x.{extension}"
    source.write_bytes((shared_data / name).read_bytes())
    report = normalise(source, tmp_path / "stored")
    assert (report.format, report.n_rows, report.n_rows_with_tools) == (format, n_rows, n_with_tools)
    assert set(report.columns) == columns
    assert sum(1 for _ in read_rows(tmp_path / "stored")) == n_rows


def test_placeholders_survive_untouched(tmp_path: Path, shared_data: Path) -> None:
    normalise(shared_data / "llamafactory/identity.json", tmp_path / "stored")
    first = to_example("instruction", {}, next(read_rows(tmp_path / "stored")).value)
    assert isinstance(first, PromptExample)
    assert (first.prompt, first.system) == ("hi", None)
    assert first.completion.startswith("Hello! I am {{name}}, an AI assistant developed by {{author}}.")


def test_question_and_answer_are_mapped(tmp_path: Path, shared_data: Path) -> None:
    report = normalise(shared_data / "gsm8k/test.jsonl", tmp_path / "stored")
    columns = {"prompt": "question", "completion": "answer"}
    assert check_columns(report, columns) == "prompt_completion"
    check_rows(tmp_path / "stored", "prompt_completion", columns)
    example = to_example("prompt_completion", columns, next(read_rows(tmp_path / "stored")).value)
    assert isinstance(example, PromptExample)
    assert example.prompt.startswith("Janet’s ducks")
    assert example.completion.endswith("#### 18")


def test_nested_rows_are_kept_but_cannot_be_replies(tmp_path: Path, shared_data: Path) -> None:
    report = normalise(shared_data / "self_instruct/seed_tasks.jsonl", tmp_path / "stored")
    columns = {"output": "instances"}
    assert check_columns(report, columns) == "instruction"
    with pytest.raises(UploadRefused) as caught:
        check_rows(tmp_path / "stored", "instruction", columns)
    assert (caught.value.code, caught.value.n_problems) == ("reply_not_string", 175)
    assert caught.value.problems[0].field == "instances"
    assert "found array" in caught.value.message


def test_real_sharegpt_rows_become_messages(tmp_path: Path, shared_data: Path) -> None:
    report = normalise(shared_data / "llamafactory/glaive_toolcall_en_demo.json", tmp_path / "stored")
    assert report.notes == ["300 rows with conversations are read as messages"]
    roles: Counter[str] = Counter()
    for row in read_rows(tmp_path / "stored"):
        example = to_example("messages", {}, row.value)
        assert isinstance(example, ChatExample)
        assert len(example.learnt) == len(example.messages) == len(row.value["conversations"])
        for message, turn in zip(example.messages, row.value["conversations"], strict=True):
            roles[f"{turn['from']}={message['role']}"] += 1
            if turn["from"] == "function_call":
                call = message["tool_calls"][0]["function"]
                assert call == json.loads(turn["value"])
                assert message["content"] == ""
            else:
                assert message["content"] == turn["value"]
    assert set(roles) == {"human=user", "gpt=assistant", "function_call=assistant", "observation=tool"}


def test_both_forms_of_real_tool_calls_give_one_example(tmp_path: Path, shared_data: Path) -> None:
    rows = [
        json.loads(line) for line in (shared_data / "openai_cookbook/drone_training.jsonl").read_text().splitlines()
    ]
    for row in rows:
        other = json.loads(json.dumps(row))
        for message in other["messages"]:
            for call in message.get("tool_calls", []):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
                message["content"] = None
        assert other != row
        first, second = to_example("messages", {}, row), to_example("messages", {}, other)
        assert first == second
        assert isinstance(first, ChatExample)
        assert "null" not in json.dumps([list(first.messages), first.tools])
        assert first.learnt == (False, False, True)


# ---------------------------------------------------------------------------------------------------------------------
# Recognition and mapping
# ---------------------------------------------------------------------------------------------------------------------

CHAT = {"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]}


@pytest.mark.parametrize(
    ("row", "format"),
    [
        ({**CHAT, "prompt": "p", "completion": "c", "text": "t"}, "messages"),
        ({"conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}], "text": "t"}, "messages"),
        ({"conversations": CHAT["messages"]}, "messages"),
        ({"prompt": "p", "completion": "c", "output": 1, "instruction": 2}, "prompt_completion"),
        ({"instruction": "i", "output": "o", "text": "t"}, "instruction"),
        ({"text": "t", "prompt": "p"}, "text"),
        ({"messages": None, "conversations": None, "text": "t"}, "text"),
        ({"messages": None, "conversations": CHAT["messages"]}, "messages"),
        ({"messages": None, "text": None, "prompt": "p", "completion": "c"}, "prompt_completion"),
        ({"Prompt": "p", "completion": "c"}, "columns"),
        ({"instruction": "i", "input": "o"}, "columns"),
    ],
)
def test_the_first_format_that_fits_wins(tmp_path: Path, row: dict[str, Any], format: str) -> None:
    report, _ = store(tmp_path, row, row)
    assert report.format == format


REPORT = DatasetReport(
    format="columns", n_rows=1, columns={" Question": ["string"], "answer": ["string"], "system": ["string"]},
    size_bytes=1, sha256="0",
)  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "code", "field", "words"),
    [
        ({}, "columns_needed", None, ["answer", "prompt_completion needs prompt and completion"]),
        ({"prompt": "question", "completion": "answer"}, "missing_column", "prompt", ['"question"', '" Question"']),
        ({"prompt": "answer", "completion": "anser"}, "missing_column", "completion", ['did you mean "answer"']),
        ({"promt": "answer"}, "unknown_field", "promt", ['did you mean "prompt"']),
        ({"prompt": "answer"}, "missing_column", "completion", ["completion", "answer"]),
        ({"prompt": "answer", "text": "system"}, "mixed_fields", "prompt", ["text needs text"]),
        ({"prompt": "answer", "completion": "answer"}, "column_twice", "prompt", []),
    ],
)
def test_a_mapping_that_does_not_fit_is_told(
    columns: dict[str, str], code: str, field: str | None, words: list[str]
) -> None:
    with pytest.raises(FormatError) as caught:
        check_columns(REPORT, columns)
    assert (caught.value.code, caught.value.field) == (code, field)
    assert [word for word in words if word not in caught.value.message] == []


@pytest.mark.parametrize(
    ("names", "columns", "format"),
    [
        (("q", "a"), {"prompt": "q", "completion": "a"}, "prompt_completion"),
        (("q", "a"), {"instruction": "q", "output": "a"}, "instruction"),
        (("q", "completion"), {"prompt": "q"}, "prompt_completion"),
        (("instruction", "output", "s"), {"system": "s"}, "instruction"),
        (("q", "body"), {"text": "body"}, "text"),
        (("dialog", "functions"), {"messages": "dialog", "tools": "functions"}, "messages"),
        (("conversations", "t"), {"tools": "t"}, "messages"),
    ],
)
def test_a_mapping_decides_the_format(names: tuple[str, ...], columns: dict[str, str], format: str) -> None:
    report = REPORT.model_copy(update={"columns": {name: ["string"] for name in names}})
    assert check_columns(report, columns) == format


def test_the_recognised_format_needs_no_mapping_and_wins_over_others() -> None:
    columns = {name: ["string"] for name in ("prompt", "completion", "instruction", "output", "s")}
    report = REPORT.model_copy(update={"columns": columns, "format": "instruction"})
    assert check_columns(report, {}) == check_columns(report, {"system": "s"}) == "instruction"


def test_rows_are_checked_again_under_a_mapping(tmp_path: Path) -> None:
    _, stored = store(tmp_path, {"q": "x", "a": "y"}, {"q": "x", "a": 4}, {"q": "x"}, {"q": "x", "a": " "})
    with pytest.raises(UploadRefused) as caught:
        check_rows(stored, "prompt_completion", {"prompt": "q", "completion": "a"})
    assert [(p.line, p.code, p.field) for p in caught.value.problems] == [
        (2, "reply_not_string", "a"), (3, "missing_field", "a"), (4, "empty_reply", "a"),
    ]  # fmt: skip
    check_rows(stored, "text", {"text": "q"})


# ---------------------------------------------------------------------------------------------------------------------
# Rows that are not conversations
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "row", "example"),
    [
        ("prompt_completion", {"prompt": "", "completion": " c\n", "x": 1}, PromptExample("", " c\n", None)),
        ("prompt_completion", {"prompt": "p", "completion": "c", "system": "s"}, PromptExample("p", "c", "s")),
        ("instruction", {"instruction": "i", "output": "o"}, PromptExample("i", "o", None)),
        ("instruction", {"instruction": "i", "input": "", "output": "o", "system": " "}, PromptExample("i", "o", None)),
        ("instruction", {"instruction": "i", "input": None, "output": "o"}, PromptExample("i", "o", None)),
        ("instruction", {"instruction": "i", "output": "o", "system": None}, PromptExample("i", "o", None)),
        ("instruction", {"instruction": "i", "input": "n", "output": "o"}, PromptExample("i\nn", "o", None)),
        ("instruction", {"instruction": "i", "output": "o", "system": "s"}, PromptExample("i", "o", "s")),
        ("instruction", {"instruction": " ", "input": "n", "output": "o"}, PromptExample("n", "o", None)),
        ("text", {"text": " t ", "prompt": 1}, TextExample(" t ")),
    ],
)  # fmt: skip
def test_rows_become_examples(format: TrainFormat, row: dict[str, Any], example: object) -> None:
    assert to_example(format, {}, row) == example


@pytest.mark.parametrize(
    ("format", "row", "code", "field"),
    [
        ("text", {"text": ""}, "empty_text", "text"),
        ("text", {"text": 3}, "not_string", "text"),
        ("text", {"body": "t"}, "missing_field", "text"),
        ("instruction", {"instruction": ["i"], "output": "o"}, "not_string", "instruction"),
        ("instruction", {"instruction": "i", "input": 3, "output": "o"}, "not_string", "input"),
        ("instruction", {"instruction": "i", "output": False}, "reply_not_string", "output"),
        ("prompt_completion", {"prompt": None, "completion": "c"}, "not_string", "prompt"),
        ("prompt_completion", {"prompt": "p", "completion": "c", "system": {}}, "not_string", "system"),
        ("messages", {"text": "t"}, "missing_field", "messages"),
        ("messages", {"messages": "hi"}, "messages_not_list", "messages"),
        ("messages", {"messages": ["hi"]}, "message_not_object", "messages[0]"),
        ("messages", {"messages": []}, "no_assistant_turn", "messages"),
    ],
)
def test_bad_rows_name_their_field(format: TrainFormat, row: dict[str, Any], code: str, field: str) -> None:
    assert fault(format, row) == (code, field)


@pytest.mark.parametrize(("number", "kind"), [(4, "number"), (None, "null"), ({"a": 1}, "object"), (["x"], "array")])
def test_the_type_found_is_told(number: object, kind: str) -> None:
    with pytest.raises(RowFault, match=f"found {kind}"):
        to_example("prompt_completion", {}, {"prompt": "p", "completion": number})
