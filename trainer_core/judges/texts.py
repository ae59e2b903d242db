"""Figures of generated texts beside their references: BLEU and chrF by sacrebleu (0 to 100), ROUGE by rouge-score."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu import corpus_bleu, corpus_chrf

from trainer_core.data.encode_pairs import Pair
from trainer_core.trainers.evaluation import Batch, Seen
from trainer_core.trainers.summed_loss import TokenLoss

ROUGE = ("rouge1", "rouge2", "rougeL")


class Words:
    """rouge-score's own tokenizer knows a to z alone: German loses its umlauts, Russian every word."""

    def tokenize(self, text: str) -> list[str]:
        return re.findall(r"\w+", text.lower())


class TextJudge:
    """`generate(batch)` gives one list of token ids a row; without it the loss alone is looked at."""

    def __init__(
        self, loss: TokenLoss, tokenizer: Any, bleu_tokenize: str, generate: Callable[[Batch], Any] | None = None
    ) -> None:
        self._loss = loss
        self._tokenizer = tokenizer
        self._bleu_tokenize = bleu_tokenize
        self.generate = generate

    def look(self, model: torch.nn.Module, batch: Batch, rows: Sequence[Pair]) -> Seen:
        labels = batch["labels"]
        with torch.no_grad():
            inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
            total = float(self._loss.total(model(**inputs).logits, labels))
        kept: list[tuple[str, str]] = []
        if self.generate is not None:
            found = self._texts(self.generate(batch))
            kept = list(zip(found, self._texts([list(row.labels) for row in rows]), strict=True))
        return Seen(total, float(self._loss.n_items(labels)), kept)

    def figures(self, loss: float, kept: Sequence[Any]) -> dict[str, float]:
        if not kept:
            return {}
        found, references = [text for text, _ in kept], [text for _, text in kept]
        # force: texts that look tokenised already are no reason for a warning in the middle of a run.
        bleu = corpus_bleu(found, [references], tokenize=self._bleu_tokenize, force=True).score
        values = {"eval_bleu": bleu, "eval_chrf": corpus_chrf(found, [references]).score}
        scorer = RougeScorer(list(ROUGE), tokenizer=Words())
        scores = [scorer.score(reference, text) for text, reference in zip(found, references, strict=True)]
        return values | {f"eval_{name}": 100 * sum(s[name].fmeasure for s in scores) / len(scores) for name in ROUGE}

    def write_files(self, output: Path) -> None:
        """Nothing beside the figures."""

    def _texts(self, sequences: Any) -> list[str]:
        return [text.strip() for text in self._tokenizer.batch_decode(sequences, skip_special_tokens=True)]
