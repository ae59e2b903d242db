"""Figures by hand-made predictions: known values, nothing that is not finite, no warning."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from trainer_core.judges.labels import LabelJudge
from trainer_core.judges.tags import TagJudge
from trainer_core.judges.texts import TextJudge
from trainer_core.methods_table import METHODS
from trainer_core.trainers.summed_loss import ClassLoss, TokenLoss


def judge(problem: str, *names: str) -> LabelJudge:
    return LabelJudge(ClassLoss(problem), problem, names)  # type: ignore[arg-type]


def test_three_classes_of_which_the_eval_rows_have_two() -> None:
    kept = [(0, [0.8, 0.1, 0.1]), (0, [0.2, 0.7, 0.1]), (1, [0.1, 0.6, 0.3]), (1, [0.3, 0.4, 0.3])]
    three = judge("single_label", "a", "b", "c")
    figures = three.figures(0.0, kept)
    assert figures["eval_accuracy"] == figures["eval_f1_micro"] == 0.75
    assert figures["eval_recall_macro"] == pytest.approx((0.5 + 1) / 2)
    assert figures["eval_precision_macro"] == pytest.approx((1 + 2 / 3) / 2)
    # a: one of the pairs (0.8, 0.2) x (0.1, 0.3) stands the wrong way; b: (0.6, 0.4) over (0.1, 0.7), two do.
    assert figures["eval_auc"] == pytest.approx((0.75 + 0.5) / 2)


def test_one_class_alone_has_no_auc_and_no_warning() -> None:
    figures = judge("single_label", "a", "b").figures(0.0, [(0, [0.9, 0.1]), (0, [0.6, 0.4])])
    assert "eval_auc" not in figures
    assert all(math.isfinite(value) for value in figures.values())


def test_many_classes_keep_the_winner_alone() -> None:
    names = [f"c{index}" for index in range(60)]
    figures = judge("single_label", *names).figures(0.0, [(3, 3), (59, 0)])
    assert figures["eval_accuracy"] == 0.5
    assert "eval_auc" not in figures


def test_several_labels() -> None:
    several = judge("multi_label", "x", "y")
    figures = several.figures(0.0, [([1, 0], [0.9, 0.2]), ([1, 1], [0.8, 0.3]), ([0, 0], [0.1, 0.1])])
    assert figures["eval_accuracy"] == pytest.approx(2 / 3)
    assert figures["eval_recall_micro"] == pytest.approx(2 / 3)
    assert figures["eval_auc"] == 1.0


def test_numbers_and_a_constant_that_correlates_with_nothing() -> None:
    figures = judge("regression", "label").figures(0.0, [(1.0, 2.0), (3.0, 4.0), (5.0, 6.0)])
    assert (figures["eval_mse"], figures["eval_rmse"], figures["eval_mae"]) == (1.0, 1.0, 1.0)
    assert figures["eval_pearson"] == pytest.approx(1.0)
    assert "eval_pearson" not in judge("regression", "label").figures(0.0, [(1.0, 2.0), (3.0, 2.0)])
    assert judge("regression", "label").figures(math.nan, [(1.0, math.nan)]) == {}


def test_the_confusion_matrix_is_of_the_last_evaluation(tmp_path: Path) -> None:
    two = judge("single_label", "a", "b")
    two.write_files(tmp_path)
    assert not list(tmp_path.iterdir())
    two.figures(0.0, [(0, [0.9, 0.1])])
    two.figures(0.0, [(0, [0.1, 0.9]), (1, [0.1, 0.9])])
    two.write_files(tmp_path)
    assert json.loads((tmp_path / "confusion_matrix.json").read_text())["matrix"] == [[0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("scheme", "gold", "found", "f1"),
    [
        ("auto", "B-P I-P O", "B-P I-P O", 1.0),
        ("auto", "I-P I-P O", "I-P I-P O", 1.0),
        ("auto", "B-P I-P O", "B-P O O", 0.0),
        ("auto", "B-P L-P U-Q", "B-P L-P O", 2 / 3),
        ("auto", "B-P I-P O", "O O O", 0.0),
        ("IOB2", "B-P I-P O", "I-P I-P O", 0.0),
        ("IOB1", "I-P I-P O", "I-P I-P O", 1.0),
    ],
)
def test_entities_are_found_whole_or_not_at_all(scheme: str, gold: str, found: str, f1: float) -> None:
    names = sorted({*gold.split(), *found.split()})
    tags = TagJudge(TokenLoss(), names, has_entities=True, scheme_name=scheme)
    figures = tags.figures(0.0, [([names.index(t) for t in gold.split()], [names.index(t) for t in found.split()])])
    assert figures["eval_f1"] == pytest.approx(f1)


def test_texts_that_are_equal_and_texts_of_other_letters() -> None:
    texts = TextJudge(TokenLoss(), None, "13a")
    same = [("Die Straße ist schön und lang .", "Die Straße ist schön und lang .")] * 2
    assert {round(value) for value in texts.figures(0.0, same).values()} == {100}
    russian = texts.figures(0.0, [("кот спит", "кот ест")])
    assert russian["eval_rouge1"] == pytest.approx(50)
    assert texts.figures(0.0, [("", "not empty")])["eval_bleu"] == 0
    assert texts.figures(0.0, []) == {}


def test_every_figure_is_named_in_the_table() -> None:
    single = judge("single_label", "a", "b").figures(0.0, [(0, [0.9, 0.1]), (1, [0.1, 0.9])])
    numbers = judge("regression", "l").figures(0.0, [(1.0, 2.0), (3.0, 4.0)])
    assert single.keys() | numbers.keys() | {"eval_loss"} == METHODS["classification"].metrics.keys()
    texts = TextJudge(TokenLoss(), None, "13a").figures(0.0, [("a b", "a b")])
    assert texts.keys() | {"eval_loss"} == METHODS["seq2seq"].metrics.keys()
    tags = TagJudge(TokenLoss(), ["O"], has_entities=True, scheme_name="auto").figures(0.0, [([0], [0])])
    assert tags.keys() | {"eval_loss"} == METHODS["token_classification"].metrics.keys()
