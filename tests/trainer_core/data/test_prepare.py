"""The rows of a run as training gets them: split, counted, and refused with their lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import make_tiny
from tests.trainer_core.data.templates import GEMMA, SPECIAL_TOKENS
from trainer_core.contract import CauseCode, Columns, DataSource, ModelSource, RunConfig
from trainer_core.data.encode import IGNORED
from trainer_core.data.prepare import Prepared, prepare
from trainer_core.model.tokenizer import load_tokenizer
from trainer_core.run.faults import Fault


def _write(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def _pairs(n: int) -> list[dict[str, str]]:
    return [{"prompt": f"q{index}", "completion": f"a{index}"} for index in range(n)]


def _prepare(model: Path, train: Path, *, seed: int = 1, **data: Any) -> Prepared:
    source = DataSource(train=train, **({"format": "prompt_completion"} | data))
    config = RunConfig(
        job_id="j", job_name="n", attempt=0, model=ModelSource(name="tiny", source=str(model)), data=source, seed=seed
    )
    return prepare(config, load_tokenizer(config.model))


def _refusal(model: Path, train: Path, **data: Any) -> Any:
    with pytest.raises(Fault) as caught:
        _prepare(model, train, **data)
    return caught.value.cause


def _ids(prepared: Prepared) -> tuple[list[list[int]], list[list[int]]]:
    return [list(row.ids) for row in prepared.train], [list(row.ids) for row in prepared.eval or []]


def test_counts_are_those_of_the_sequences(tiny_model: Path, tmp_path: Path) -> None:
    prepared = _prepare(
        tiny_model, _write(tmp_path / "t.jsonl", _pairs(5)), eval=_write(tmp_path / "e.jsonl", _pairs(2))
    )
    report = prepared.report
    assert (report.n_train_rows, report.n_eval_rows) == (len(prepared.train), len(prepared.eval or [])) == (5, 2)
    assert report.trained_tokens == 5 * 3  # "a", a digit, eos
    assert report.total_tokens == sum(len(row.ids) for row in prepared.train)
    assert (report.n_truncated, report.n_dropped, report.dropped_lines) == (0, 0, [])
    assert sum(report.histogram.counts) == 5
    assert report.histogram.longest == len(prepared.train[0].ids)
    assert any("<pad>" in note for note in report.notes)
    assert any("as a conversation" in note for note in report.notes)


def test_the_sample_shows_the_first_row_and_what_it_learns(tiny_model: Path, tmp_path: Path) -> None:
    rows = [{"prompt": "né", "completion": "👩‍👩‍👧 ok"}]
    report = _prepare(tiny_model, _write(tmp_path / "t.jsonl", rows)).report
    assert "".join(token.text for token in report.sample) == report.sample_text
    assert "".join(token.text for token in report.sample if token.learnt) == "👩‍👩‍👧 ok</s>"
    assert "�" not in report.sample_text
    assert report.sample_text.startswith("<s><|im_start|>user\nné</s>")


def test_the_split_is_by_seed_and_keeps_every_row_once(tiny_model: Path, tmp_path: Path) -> None:
    train = _write(tmp_path / "t.jsonl", _pairs(40))
    first, again = (_ids(_prepare(tiny_model, train, eval_fraction=0.25, seed=7)) for _ in range(2))
    other = _ids(_prepare(tiny_model, train, eval_fraction=0.25, seed=8))
    assert first == again
    assert first != other
    assert (len(first[0]), len(first[1])) == (30, 10)
    everything, _ = _ids(_prepare(tiny_model, train))
    assert sorted(first[0] + first[1]) == sorted(everything)
    assert first[0] == [row for row in everything if row in first[0]]


@pytest.mark.parametrize(("n_rows", "fraction", "n_eval"), [(2, 0.01, 1), (2, 0.99, 1), (10, 0.99, 9), (3, 0.5, 2)])
def test_each_side_of_the_split_has_a_row(
    tiny_model: Path, tmp_path: Path, n_rows: int, fraction: float, n_eval: int
) -> None:
    train = _write(tmp_path / "t.jsonl", _pairs(n_rows))
    report = _prepare(tiny_model, train, eval_fraction=fraction).report
    assert (report.n_train_rows, report.n_eval_rows) == (n_rows - n_eval, n_eval)


def test_one_row_cannot_be_split(tiny_model: Path, tmp_path: Path) -> None:
    cause = _refusal(tiny_model, _write(tmp_path / "t.jsonl", _pairs(1)), eval_fraction=0.5)
    assert (cause.code, cause.param) == (CauseCode.CONFIG_INVALID, "dataset.eval_fraction")


def test_windows_of_one_text_stay_on_one_side(tiny_model: Path, tmp_path: Path) -> None:
    rows = [{"text": letter * 60} for letter in "abcdefgh"]
    prepared = _prepare(
        tiny_model, _write(tmp_path / "t.jsonl", rows), format="text", max_length=16, eval_fraction=0.25
    )
    train, held_out = _ids(prepared)
    assert len(train) > 6
    assert len(held_out) > 2
    assert prepared.report.n_train_rows == len(train)
    letters = [{id_ for ids in side for id_ in ids} - {0, 1} for side in (train, held_out)]  # without bos and eos
    assert letters[0].isdisjoint(letters[1])
    assert any("8 texts make" in note for note in prepared.report.notes)


def test_rows_cut_and_dropped_are_counted_by_line(tiny_model: Path, tmp_path: Path) -> None:
    rows = _pairs(4)
    rows[1]["completion"] = "x" * 100
    rows[2]["prompt"] = "x" * 100
    report = _prepare(tiny_model, _write(tmp_path / "t.jsonl", rows), max_length=60).report
    assert (report.n_train_rows, report.n_truncated, report.n_dropped) == (3, 2, 1)
    assert report.dropped_lines == [3]
    assert any("1 row was dropped" in note and "line 3." in note for note in report.notes)
    assert any("2 rows were cut at 60 tokens" in note for note in report.notes)


def test_rows_of_which_none_is_learnt_are_refused_with_the_length_needed(tiny_model: Path, tmp_path: Path) -> None:
    rows = [{"prompt": "x" * 100, "completion": "a"}] * 3
    cause = _refusal(tiny_model, _write(tmp_path / "t.jsonl", rows), max_length=50)
    assert (cause.code, cause.param, cause.line) == (CauseCode.NO_TRAINABLE_TOKENS, "dataset.max_length", 1)
    assert cause.details["lines"] == [1, 2, 3]
    assert "123 tokens" in cause.hint


def test_every_row_at_fault_is_listed_with_its_line(tiny_model: Path, tmp_path: Path) -> None:
    rows: list[Any] = _pairs(1200)
    for line in (3, 700, 1100):
        rows[line - 1] = {"prompt": "q", "completion": 4}
    cause = _refusal(tiny_model, _write(tmp_path / "t.jsonl", rows))
    assert (cause.code, cause.param, cause.line) == (CauseCode.DATA_INVALID, "dataset.train", 3)
    assert [problem["line"] for problem in cause.details["problems"]] == [3, 700, 1100]
    assert cause.details["n_problems"] == 3
    assert "line 3" in cause.message


def test_what_the_template_refuses_is_told_with_its_line(tmp_path: Path) -> None:
    model = make_tiny(tmp_path / "model", chat_template=GEMMA, extra_tokens=SPECIAL_TOKENS["gemma"])
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    rows = [{"messages": turns}, {"messages": [{"role": "system", "content": "s"}, *turns]}]
    cause = _refusal(model, _write(tmp_path / "t.jsonl", rows), format="messages")
    assert (cause.code, cause.line) == (CauseCode.DATA_INVALID, 2)
    assert "System role not supported" in cause.message
    assert "chat template" in cause.hint


@pytest.mark.parametrize("name", ["train", "eval"])
def test_a_file_that_is_away_or_empty_is_named(tiny_model: Path, tmp_path: Path, name: str) -> None:
    good = _write(tmp_path / "good.jsonl", _pairs(2))
    for bad in (tmp_path / "away.jsonl", _write(tmp_path / "empty.jsonl", [])):
        files = {"train": good} | {name: bad}
        cause = _refusal(tiny_model, files.pop("train"), **files)
        assert (cause.code, cause.param) == (CauseCode.DATA_INVALID, f"dataset.{name}")


def test_a_broken_line_is_told_by_the_strict_reader(tiny_model: Path, tmp_path: Path) -> None:
    path = _write(tmp_path / "t.jsonl", _pairs(3))
    path.write_text(path.read_text().replace('"a1"', '"a"1"'))
    cause = _refusal(tiny_model, path)
    assert (cause.code, cause.param, cause.line) == (CauseCode.DATA_INVALID, "dataset.train", 2)


def test_real_questions_and_answers_train(tiny_model: Path, shared_data: Path) -> None:
    columns = Columns(prompt="question", completion="answer")
    prepared = _prepare(tiny_model, shared_data / "gsm8k" / "train_first1000.jsonl", columns=columns, max_length=2048)
    assert prepared.report.n_train_rows == 1000
    assert prepared.report.n_dropped == 0
    first = "".join(token.text for token in prepared.report.sample if token.learnt)
    assert first.endswith("#### 72</s>")


def test_placeholders_of_a_real_file_survive(tiny_model: Path, shared_data: Path, tmp_path: Path) -> None:
    rows = json.loads((shared_data / "llamafactory" / "identity.json").read_text(encoding="utf-8"))
    prepared = _prepare(tiny_model, _write(tmp_path / "t.jsonl", rows), format="instruction")
    assert prepared.report.n_train_rows == 91
    assert "{{name}}" in prepared.report.sample_text
    assert "{{author}}" in prepared.report.sample_text


def test_real_conversations_train_on_at_least_one_token_each(tiny_model: Path, shared_data: Path) -> None:
    path = shared_data / "openai_cookbook" / "toy_chat_fine_tuning.jsonl"
    prepared = _prepare(tiny_model, path, format="messages", max_length=1024)
    assert prepared.report.n_train_rows == 5
    assert prepared.report.n_truncated == 1  # a reply of 26,000 characters
    assert all(row.n_learnt > 0 for row in prepared.train)


def test_whole_texts_of_a_real_file_are_learnt(tiny_model: Path, shared_data: Path) -> None:
    prepared = _prepare(tiny_model, shared_data / "llamafactory" / "c4_demo.jsonl", format="text", max_length=1024)
    n_bytes = sum(
        len(json.loads(line)["text"].encode())
        for line in (shared_data / "llamafactory" / "c4_demo.jsonl").read_text(encoding="utf-8").splitlines()
    )
    learnt = sum(label != IGNORED for row in prepared.train for label in row.labels)
    assert learnt == prepared.report.trained_tokens == n_bytes + 300  # one eos a text
