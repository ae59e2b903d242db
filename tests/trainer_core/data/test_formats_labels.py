"""Labels of a whole file: one kind, counted, near misses named, texts typed together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainer_core.data.uploads import put, refused
from trainer_core.data.examples import Label
from trainer_core.data.labels import MAX_COUNTED, MAX_LABELS, LabelCensus
from trainer_core.data.report import DatasetReport


def labelled(*labels: Any) -> bytes:
    return "".join(json.dumps({"text": "t", "label": label}) + "\n" for label in labels).encode()


def table(*labels: str) -> bytes:
    return ("text,label\n" + "".join(f"t,{label}\n" for label in labels)).encode()


def census(*labels: Label) -> LabelCensus:
    counted = LabelCensus()
    for label in labels:
        counted.add(label, "label")
    return counted


@pytest.mark.parametrize(
    ("content", "kind", "labels"),
    [
        (labelled("ham", "spam", "ham"), "string", {"ham": 2, "spam": 1}),
        (labelled(1, 2, 4, 1), "integer", {"1": 2, "2": 1, "4": 1}),
        (labelled(True, False, True), "boolean", {"true": 2, "false": 1}),
        (labelled(["a", "b"], [], ["b"]), "list", {"b": 2, "a": 1}),
        (labelled(1, 0.5), "number", {}),
        (labelled(0.5, 1), "number", {}),
        (table("1", "2", "2"), "integer", {"2": 2, "1": 1}),
        (table("0.5", "2", "-1e3"), "number", {}),
        (table("True", "false", "false"), "boolean", {"false": 2, "True": 1}),
        (table("1", "2", "x"), "string", {"1": 1, "2": 1, "x": 1}),
        (table("01", "2"), "string", {"01": 1, "2": 1}),
        (table("true", "1"), "string", {"true": 1, "1": 1}),
        (table("1e99999", "1.0"), "string", {"1e99999": 1, "1.0": 1}),
    ],
)
def test_a_files_labels_are_counted_and_typed(
    tmp_path: Path, content: bytes, kind: str, labels: dict[str, int]
) -> None:
    report, rows = put(tmp_path, content)
    assert (report.format, report.label_kind, report.labels) == ("classification", kind, labels)
    assert report.n_labels == len(labels)
    typed_from_text = content.startswith(b"text") and kind != "string"
    assert any("texts that all stand for" in note for note in report.notes) == typed_from_text
    assert not content.startswith(b"text") or all(isinstance(row["label"], str) for row in rows)
    assert DatasetReport.model_validate_json(report.model_dump_json()) == report


@pytest.mark.parametrize(
    "labels", [("a", 1), (1, "a"), (0.5, "a"), (True, 1), (1, True), ("a", ["a"]), (0.5, False), (["a"], 1)]
)
def test_labels_of_two_kinds_are_refused_with_their_line(tmp_path: Path, labels: tuple[Any, ...]) -> None:
    refusal = refused(tmp_path, labelled(labels[0], labels[0], labels[1]))
    assert [(p.code, p.line, p.field) for p in refusal.problems] == [("mixed_labels", 3, "label")]


@pytest.mark.parametrize(("label", "code"), [(None, "empty_label"), ("", "empty_label"), (" ", "empty_label")])
def test_rows_without_a_label_are_refused(tmp_path: Path, label: object, code: str) -> None:
    assert [(p.code, p.line) for p in refused(tmp_path, labelled("a", label)).problems] == [(code, 2)]


def test_labels_that_differ_in_case_or_space_are_named(tmp_path: Path) -> None:
    report, _ = put(tmp_path, labelled("Spam", "spam", "ham", "spam ", "eggs"))
    assert report.n_labels == 5
    notes = [note for note in report.notes if "differ in case" in note]
    assert notes == ['"Spam" and "spam" and "spam " differ in case or space only: 3 labels']


def test_tags_are_counted_and_are_of_one_kind(tmp_path: Path) -> None:
    rows = [{"tokens": ["a", "b"], "tags": ["O", "B-PER"]}, {"tokens": ["c"], "tags": ["O"]}]
    report, _ = put(tmp_path, "\n".join(map(json.dumps, rows)).encode())
    assert (report.format, report.label_kind, report.labels) == (
        "token_classification", "string", {"O": 2, "B-PER": 1},
    )  # fmt: skip


def test_tags_of_two_kinds_are_refused_with_their_line(tmp_path: Path) -> None:
    content = b'{"tokens": ["a"], "tags": ["O"]}\n{"tokens": ["a"], "tags": [0]}\n'
    assert [(p.code, p.line, p.field) for p in refused(tmp_path, content).problems] == [("mixed_labels", 2, "tags")]


def test_tags_that_look_like_numbers_stay_texts(tmp_path: Path) -> None:
    report, _ = put(tmp_path, b'{"tokens": ["a", "b"], "tags": ["0", "1"]}\n')
    assert (report.label_kind, report.labels) == ("string", {"0": 1, "1": 1})


def test_feedback_is_counted(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "completion": "c", "label": label} for label in (True, False, True, 1)]
    report, _ = put(tmp_path, "\n".join(map(json.dumps, rows)).encode())
    assert (report.format, report.labels) == ("feedback", {"true": 3, "false": 1})
    refusal = refused_rows(tmp_path, [*rows, {**rows[0], "label": "true"}])
    assert refusal == [("label_not_boolean", 5)]


def refused_rows(folder: Path, rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    (folder / "stored.jsonl").unlink()
    refusal = refused(folder, "\n".join(map(json.dumps, rows)).encode())
    return [(problem.code, problem.line) for problem in refusal.problems]


@pytest.mark.parametrize(("n", "counted"), [(MAX_LABELS, MAX_LABELS), (1500, 1500), (12_000, MAX_COUNTED)])
def test_many_labels_are_only_counted(n: int, counted: int) -> None:
    found = census(*(f"label {number}" for number in range(n)), *(f"label {number}" for number in range(n)))
    assert found.n_labels == counted
    assert len(found.listed) == (n if n <= MAX_LABELS else 0)
    assert any("column is the right one" in note for note in found.notes()) == (n > MAX_LABELS)


def test_a_regressions_many_numbers_are_no_labels() -> None:
    found = census(*(f"{number}.5" for number in range(2000)))
    assert (found.kind, found.n_labels, found.listed) == ("number", 0, {})
    assert found.notes() == ["the labels are texts that all stand for numbers, and are taken as such"]


@pytest.mark.parametrize(
    ("labels", "typed"),
    [
        (("1", "2"), [1, 2]),
        (("0.5", "2"), [0.5, 2.0]),
        ((0.5, 2), [0.5, 2.0]),
        (("TRUE", "false"), [True, False]),
        (("1", "x"), ["1", "x"]),
        ((3, 4), [3, 4]),
        ((("a",), ()), [("a",), ()]),
    ],
)
def test_labels_are_typed_together(labels: tuple[Label, ...], typed: list[Label]) -> None:
    found = census(*labels)
    result = [found.typed(label) for label in labels]
    assert result == typed
    assert list(map(type, result)) == list(map(type, typed))


def test_a_label_that_postgresql_cannot_hold_is_escaped(tmp_path: Path) -> None:
    report, _ = put(tmp_path, labelled("a\0b"))
    assert report.labels == {"a\\u0000b": 1}
