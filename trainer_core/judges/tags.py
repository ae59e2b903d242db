"""Figures of a tagger: words tagged right, and entities found whole, by seqeval."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from seqeval import scheme
from seqeval.metrics import sequence_labeling, v1

from trainer_core.data.encode_tags import Tagged
from trainer_core.trainers.evaluation import Batch, Seen
from trainer_core.trainers.summed_loss import TokenLoss


class TagJudge:
    """`names` by number; `scheme_name` as in TokenClassificationOptions."""

    def __init__(self, loss: TokenLoss, names: Sequence[str], *, has_entities: bool, scheme_name: str) -> None:
        self._loss = loss
        self._names = list(names)
        self._has_entities = has_entities
        is_bilou = any(name[:2] in ("L-", "U-") for name in names)
        self._scheme = "BILOU" if scheme_name == "auto" and is_bilou else scheme_name

    def look(self, model: torch.nn.Module, batch: Batch, rows: Sequence[Tagged]) -> Seen:
        labels = batch.pop("labels")
        with torch.no_grad():
            logits = model(**batch).logits
        found = logits.argmax(-1).cpu().tolist()
        kept = [(list(row.tags), [tags[start] for start in row.starts]) for row, tags in zip(rows, found, strict=True)]
        return Seen(float(self._loss.total(logits, labels)), float(self._loss.n_items(labels)), kept)

    def figures(self, loss: float, kept: Sequence[Any]) -> dict[str, float]:
        pairs = [(tag, tagged) for gold, found in kept for tag, tagged in zip(gold, found, strict=True)]
        values = {"eval_accuracy": sum(tag == tagged for tag, tagged in pairs) / len(pairs)}
        if not self._has_entities:
            return values
        gold = [[self._names[tag] for tag in tags] for tags, _ in kept]
        found = [[self._names[tag] for tag in tags] for _, tags in kept]
        if self._scheme == "auto":  # as conlleval reads them
            three = sequence_labeling.precision_recall_fscore_support(gold, found, average="micro", zero_division=0)
        else:
            rules = getattr(scheme, self._scheme)
            three = v1.precision_recall_fscore_support(gold, found, average="micro", zero_division=0, scheme=rules)
        precision, recall, f1, _ = three
        return values | {"eval_precision": float(precision), "eval_recall": float(recall), "eval_f1": float(f1)}

    def write_files(self, output: Path) -> None:
        """Nothing beside the figures."""
