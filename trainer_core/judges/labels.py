"""Figures of a classifier or a regression, by scikit-learn, and its confusion matrix as a file.

A figure that the rows cannot yield (AUC of one class alone) is left out, never NaN.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn import metrics

from trainer_core.data.encode_labels import Labelled
from trainer_core.trainers.evaluation import Batch, Seen
from trainer_core.trainers.summed_loss import ClassLoss

MAX_CLASSES_WITH_SCORES = 50
"""Every row's score for every class is kept for AUC; with more classes only the winner is."""
CONFUSION = "confusion_matrix.json"


class LabelJudge:
    def __init__(
        self, loss: ClassLoss, problem: Literal["single_label", "multi_label", "regression"], names: Sequence[str]
    ) -> None:
        self._loss = loss
        self._problem = problem
        self._names = list(names)
        self._confusion: Any = None

    def look(self, model: torch.nn.Module, batch: Batch, rows: Sequence[Labelled]) -> Seen:
        labels = batch.pop("labels")
        with torch.no_grad():
            logits = model(**batch).logits.float()
        scores = [self._kept(row) for row in logits.cpu()]
        total, n_items = float(self._loss.total(logits, labels)), float(self._loss.n_items(labels))
        return Seen(total, n_items, [(row.label, score) for row, score in zip(rows, scores, strict=True)])

    def figures(self, loss: float, kept: Sequence[Any]) -> dict[str, float]:
        gold = np.array([label for label, _ in kept])
        scores = np.array([score for _, score in kept])
        if not np.isfinite(scores).all():
            return {}  # the loss says so already
        computed = {"regression": self._numbers, "multi_label": self._several, "single_label": self._single}
        values = computed[self._problem](gold, scores)
        return {f"eval_{name}": float(value) for name, value in values.items() if math.isfinite(value)}

    def write_files(self, output: Path) -> None:
        if self._confusion is not None:
            text = json.dumps({"labels": self._names, "problem": self._problem, "matrix": self._confusion})
            (output / CONFUSION).write_text(text + "\n", encoding="utf-8")

    def _kept(self, logits_C: torch.Tensor) -> Any:
        if self._problem == "regression":
            return float(logits_C[0])
        if self._problem == "multi_label":
            return logits_C.sigmoid().tolist()
        return int(logits_C.argmax()) if len(self._names) > MAX_CLASSES_WITH_SCORES else logits_C.softmax(-1).tolist()

    def _numbers(self, gold: Any, found: Any) -> dict[str, float]:
        values = {
            "mse": metrics.mean_squared_error(gold, found),
            "rmse": metrics.root_mean_squared_error(gold, found),
            "mae": metrics.mean_absolute_error(gold, found),
        }
        if len(gold) > 1 and np.ptp(gold) > 0 and np.ptp(found) > 0:  # a constant correlates with nothing
            values["pearson"] = np.corrcoef(gold, found)[0, 1]
        return values

    def _single(self, gold: Any, scores: Any) -> dict[str, float]:
        found = scores if scores.ndim == 1 else scores.argmax(-1)
        # One row a true class, one column a predicted one.
        self._confusion = metrics.confusion_matrix(gold, found, labels=range(len(self._names))).tolist()
        present = np.union1d(gold, found)
        values = _averages(gold, found, labels=present)
        if scores.ndim == 2:
            is_binary = scores.shape[1] == 2
            one_hot = np.equal.outer(gold, np.arange(scores.shape[1]))
            values |= _auc(one_hot[:, 1:], scores[:, 1:]) if is_binary else _auc(one_hot, scores)
        return values

    def _several(self, gold: Any, scores: Any) -> dict[str, float]:
        found = (scores > 0.5).astype(int)
        # For each label: [[true no, false yes], [false no, true yes]].
        self._confusion = metrics.multilabel_confusion_matrix(gold, found).tolist()
        return _averages(gold, found, labels=None) | _auc(gold.astype(bool), scores)


def _averages(gold: Any, found: Any, labels: Any) -> dict[str, float]:
    """Macro figures are over the classes that are there, in truth or in prediction."""
    values = {"accuracy": metrics.accuracy_score(gold, found)}
    for average in ("macro", "micro"):
        three = metrics.precision_recall_fscore_support(
            gold, found, labels=labels, average=average, zero_division=0
        )[:3]  # fmt: skip
        values |= {f"{name}_{average}": value for name, value in zip(("precision", "recall", "f1"), three, strict=True)}
    return values


def _auc(is_class: Any, scores: Any) -> dict[str, float]:
    """Area under the ROC curve, one class against the rest, averaged over the classes that some rows have and some
    have not."""
    areas = [
        metrics.roc_auc_score(is_class[:, index], scores[:, index])
        for index in range(is_class.shape[1])
        if 0 < is_class[:, index].sum() < len(is_class)
    ]
    return {"auc": float(np.mean(areas))} if areas else {}
