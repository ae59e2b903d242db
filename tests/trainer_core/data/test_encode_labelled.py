"""Labels, tags and pairs as training gets them: mapped from both splits, aligned, cut, and refused with what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_seq2seq import make_tiny_bert, make_tiny_t5
from trainer_core.contract import CauseCode, RunConfig
from trainer_core.data.encode_labels import LabelEncoder
from trainer_core.data.encode_tags import TagEncoder
from trainer_core.data.prepare import Prepared, prepare, prepare_rows
from trainer_core.model.tokenizer import load_tokenizer
from trainer_core.run.faults import Fault


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_bert(tmp_path_factory.mktemp("bert") / "model")


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_t5(tmp_path_factory.mktemp("t5") / "model")


def make_config(
    model: Path, folder: Path, method: str, rows: list[Any], held_out: list[Any] | None = None, **parts: Any
) -> RunConfig:
    for name, lines in (("train", rows), ("eval", held_out or [])):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in lines))
    row_format = "prompt_completion" if method == "seq2seq" else method
    data = {"format": row_format, "train": folder / "train", **parts.pop("data", {})}
    if held_out:
        data["eval"] = folder / "eval"
    source = {"name": "tiny", "source": str(model)}
    return RunConfig(job_id="j", job_name="n", attempt=0, method=method, model=source, data=data, **parts)  # type: ignore[arg-type]


def labelled(model: Path, folder: Path, *args: Any, **parts: Any) -> tuple[Prepared[Any], LabelEncoder]:
    config = make_config(model, folder, "classification", *args, **parts)
    loaded = load_tokenizer(config.model, config.method)
    encoder = LabelEncoder(loaded, config)
    return prepare_rows(config, loaded, encoder), encoder


def tagged(model: Path, folder: Path, *args: Any, **parts: Any) -> tuple[Prepared[Any], TagEncoder]:
    config = make_config(model, folder, "token_classification", *args, **parts)
    loaded = load_tokenizer(config.model, config.method)
    encoder = TagEncoder(loaded, config)
    return prepare_rows(config, loaded, encoder), encoder


def texts(*labels: Any) -> list[dict[str, Any]]:
    return [{"text": f"t{index}", "label": label} for index, label in enumerate(labels)]


# Labels ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "problem", "names", "mapped"),
    [
        (["b", "a", "b"], "single_label", ("a", "b"), [1, 0, 1]),
        ([10, 2, 10], "single_label", ("2", "10"), [1, 0, 1]),
        (["10", "2", "2"], "single_label", ("2", "10"), [1, 0, 0]),
        ([True, False, True], "single_label", ("false", "true"), [1, 0, 1]),
        ([0.5, 2, 1], "regression", ("label",), [0.5, 2.0, 1.0]),
        ([["x"], [], ["y", "x"]], "multi_label", ("x", "y"), [(1, 0), (0, 0), (1, 1)]),
    ],
)
def test_the_problem_and_the_map_follow_from_the_labels(
    bert: Path, tmp_path: Path, labels: list[Any], problem: str, names: tuple[str, ...], mapped: list[Any]
) -> None:
    prepared, encoder = labelled(bert, tmp_path, texts(*labels))
    assert (encoder.problem, encoder.names) == (problem, names)
    assert [row.label for row in prepared.train] == mapped


def test_the_map_is_of_both_splits_and_what_one_lacks_is_said(bert: Path, tmp_path: Path) -> None:
    prepared, encoder = labelled(bert, tmp_path, texts("a", "c", "a"), texts("b", "a"))
    assert encoder.names == ("a", "b", "c")
    assert [row.label for row in prepared.eval or []] == [1, 0]
    notes = " ".join(prepared.report.notes)
    assert "eval rows alone and cannot be learnt: b" in notes
    assert "no figure tells of them: c" in notes
    assert "0 a (2), 1 b (0), 2 c (1)" in notes


def test_labels_that_differ_in_case_alone_are_reported(bert: Path, tmp_path: Path) -> None:
    prepared, encoder = labelled(bert, tmp_path, texts("Spam", "ham"), texts("spam"))
    assert encoder.names == ("Spam", "ham", "spam")
    assert any('"Spam" and "spam" differ in case' in note for note in prepared.report.notes)


def test_a_label_of_another_kind_is_refused_with_its_line(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(Fault) as caught:
        labelled(bert, tmp_path, texts("a", "b", 3))
    assert (caught.value.cause.code, caught.value.cause.line) == (CauseCode.DATA_INVALID, 3)


@pytest.mark.parametrize(
    ("labels", "options", "training", "metric", "param"),
    [
        (["a", "b"], {"problem": "regression"}, {}, "eval_loss", "classification.problem"),
        ([["a"], ["b"]], {"problem": "single_label"}, {}, "eval_loss", "classification.problem"),
        (["a", "b"], {"class_weights": {"c": 2}}, {}, "eval_loss", "classification.class_weights"),
        ([1.5, 2.5], {"class_weights": "balanced"}, {}, "eval_loss", "classification.class_weights"),
        ([1.5, 2.5], {}, {"label_smoothing_factor": 0.1}, "eval_loss", "training.label_smoothing_factor"),
        ([1.5, 2.5], {}, {}, "eval_accuracy", "training.metric_for_best_model"),
        (["a", "b"], {}, {}, "eval_rmse", "training.metric_for_best_model"),
        (["a", "a"], {}, {}, "eval_loss", "dataset.train"),
    ],
)
def test_options_that_do_not_fit_the_labels_are_refused(
    bert: Path, tmp_path: Path, labels: list[Any], options: Any, training: Any, metric: str, param: str
) -> None:
    with pytest.raises(Fault) as caught:
        labelled(bert, tmp_path, texts(*labels), classification=options, training=training, metric_for_best=metric)
    assert caught.value.cause.param == param
    assert caught.value.cause.hint


def test_whole_numbers_can_be_a_regression(bert: Path, tmp_path: Path) -> None:
    prepared, encoder = labelled(bert, tmp_path, texts(1, 5), classification={"problem": "regression"})
    assert encoder.problem == "regression"
    assert [row.label for row in prepared.train] == [1.0, 5.0]


def test_balanced_weights_are_scikit_learns(bert: Path, tmp_path: Path) -> None:
    _, encoder = labelled(bert, tmp_path, texts("a", "a", "a", "b"), classification={"class_weights": "balanced"})
    assert encoder.class_weights == pytest.approx([4 / (2 * 3), 4 / (2 * 1)])
    rows = texts(["a"], ["a"], ["a", "b"], [])
    _, encoder = labelled(bert, tmp_path, rows, classification={"class_weights": "balanced"})
    assert encoder.class_weights == pytest.approx([1 / 3, 3])


def test_a_pair_has_two_segments_and_both_ends_survive_a_cut(bert: Path, tmp_path: Path) -> None:
    rows = [{"text": "a" * 30, "text_pair": "b" * 5, "label": "x"}, {"text": "q", "text_pair": "r", "label": "y"}]
    prepared, _ = labelled(bert, tmp_path, rows, data={"max_length": 16})
    cut, whole = prepared.train
    assert (len(cut.ids), cut.n_dropped_tokens, prepared.report.n_truncated) == (16, 38 - 16, 1)
    assert list(whole.type_ids) == [0, 0, 0, 1, 1]
    assert cut.ids[-1] == whole.ids[-1]
    assert list(cut.type_ids).count(1) == 6


# Tags -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every_piece", "expected"),
    [(False, ["B-X", ".", ".", ".", "O", "."]), (True, ["B-X", "I-X", "I-X", "I-X", "O", "O"])],
)
def test_tags_stand_on_the_first_piece_or_on_all(
    bert: Path, tmp_path: Path, every_piece: bool, expected: list[str]
) -> None:
    rows = [{"tokens": ["abcd", "ef"], "tags": ["B-X", "O"]}, {"tokens": ["gh"], "tags": ["I-X"]}]
    prepared, encoder = tagged(bert, tmp_path, rows, token_classification={"label_all_tokens": every_piece})
    assert encoder.names == ("B-X", "I-X", "O")
    row = prepared.train[0]
    found = ["." if label == -100 else encoder.names[label] for label in row.labels]
    assert [name for name, word in zip(found, row.words, strict=True) if word >= 0] == expected
    assert found[0] == found[-1] == "."
    assert [encoder.names[tag] for tag in row.tags] == ["B-X", "O"]
    assert row.n_learnt == (6 if every_piece else 2)


def test_numbered_tags_get_their_names_and_one_too_many_is_refused(bert: Path, tmp_path: Path) -> None:
    rows = [{"tokens": ["a", "b"], "tags": [0, 1]}]
    _, encoder = tagged(bert, tmp_path, rows, token_classification={"tag_names": ["O", "B-X"]})
    assert encoder.names == ("B-X", "O")
    assert encoder.has_entities
    with pytest.raises(Fault) as caught:
        tagged(bert, tmp_path, rows, token_classification={"tag_names": ["O"]})
    assert caught.value.cause.line == 1
    assert "tags[1]" in caught.value.cause.message


def test_words_beyond_max_length_are_cut_and_counted(bert: Path, tmp_path: Path) -> None:
    rows = [{"tokens": ["abc", "def", "ghi"], "tags": ["O", "B-X", "O"]}]
    prepared, _ = tagged(bert, tmp_path, rows, data={"max_length": 8})
    row = prepared.train[0]
    assert len(row.ids) == 8
    assert len(row.tags) == len(row.starts) == 2
    assert prepared.report.n_truncated == 1


# Pairs ----------------------------------------------------------------------------------------------------------------


def test_pairs_end_with_eos_once_and_are_cut_on_their_own_sides(t5: Path, tmp_path: Path) -> None:
    rows = [{"prompt": "abc", "completion": "xy"}, {"prompt": "a" * 20, "completion": "b" * 20}]
    options = {"source_prefix": "to: ", "max_target_length": 6}
    config = make_config(t5, tmp_path, "seq2seq", rows, seq2seq=options, data={"max_length": 10})
    loaded = load_tokenizer(config.model, "seq2seq")
    from_rows = prepare(config, loaded)
    short, long = from_rows.train
    assert loaded.tokenizer.decode(list(short.ids)) == "to: abc</s>"
    assert loaded.tokenizer.decode(list(short.labels)) == "xy</s>"
    assert (len(long.ids), long.ids[-1]) == (10, loaded.eos_id)
    assert (len(long.labels), loaded.eos_id in long.labels) == (6, False)
    assert long.n_dropped_tokens == (25 - 10) + (21 - 6)
    assert from_rows.report.trained_tokens == 3 + 6
