"""Texts, or pairs of texts, with one label each: to token ids and class numbers. Torch-free.

Which problem it is (one class, several, a number) shows once all rows are read, and so does the label map.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from trainer_core.contract import CauseCode, RunConfig
from trainer_core.contract.method_options import ClassificationOptions
from trainer_core.data.examples import Label, LabelExample
from trainer_core.data.label_map import LabelMap, check_metric, describe, make_map, name_of
from trainer_core.data.labels import LabelCensus
from trainer_core.methods_table import CLASSES, NUMBERS
from trainer_core.model.tokenizer import LoadedTokenizer
from trainer_core.run.faults import Fault

Problem = Literal["single_label", "multi_label", "regression"]
PARAM = "classification.problem"


@dataclass(frozen=True, slots=True)
class Labelled:
    """One row. `label` is as the file has it until the encoder settles; then a class number, a tuple with 0 or 1 for
    each class, or a float."""

    ids: Sequence[int]
    type_ids: Sequence[int] | None
    label: Any
    n_dropped_tokens: int = 0

    @property
    def is_truncated(self) -> bool:
        return self.n_dropped_tokens > 0

    @property
    def n_tokens(self) -> int:
        return len(self.ids)

    @property
    def n_learnt(self) -> int:
        return 1

    def marked(self) -> Iterator[tuple[int, bool]]:
        return ((id_, False) for id_ in self.ids)


class LabelEncoder:
    """After `settle`: the problem, the names of the classes (or the one output of a regression), their weights."""

    problem: Problem
    names: tuple[str, ...]
    class_weights: list[float] | None

    def __init__(self, loaded: LoadedTokenizer, config: RunConfig) -> None:
        self._tokenizer = loaded.tokenizer
        self._config = config
        self._options = config.classification or ClassificationOptions()
        self._max_length = config.data.max_length
        self._column = config.data.columns.label or "label"
        self._census = LabelCensus()
        self._notes: list[str] = []

    def draft(self, example: LabelExample) -> LabelExample:
        self._census.add(example.label, self._column)
        return example

    def encode(self, drafts: Sequence[LabelExample]) -> Iterator[list[Labelled]]:
        if not drafts:
            return
        has_pairs = any(draft.text_pair is not None for draft in drafts)
        pairs = [draft.text_pair or "" for draft in drafts] if has_pairs else None
        # verbose=False: a text beyond the model's window is cut below, so the library's warning would mislead.
        out = self._tokenizer([draft.text for draft in drafts], pairs, verbose=False)
        for index, draft in enumerate(drafts):
            ids = out["input_ids"][index]
            type_ids = out["token_type_ids"][index] if "token_type_ids" in out else None
            yield [self._row(draft, ids, type_ids, has_pairs)]

    def settle(
        self, train: list[Labelled], held_out: list[Labelled] | None
    ) -> tuple[list[Labelled], list[Labelled] | None]:
        self.problem = self._settle_problem()
        check_metric(self._config, NUMBERS if self.problem == "regression" else CLASSES)
        if self.problem != "single_label" and self._config.training.get("label_smoothing_factor"):
            raise _does_not_fit(
                f"Label smoothing moves weight between classes, and this is {self.problem}.",
                "Leave it out.",
                "training.label_smoothing_factor",
            )
        if self.problem == "regression":
            return self._settle_numbers(train, held_out)
        label_map = make_map(self._census, f"dataset.columns.{self._column}")
        self.names = label_map.names
        if self.problem == "single_label" and len(self.names) < 2:
            raise Fault(
                CauseCode.DATA_INVALID,
                f"All rows have the same label, {self.names[0]}: there is nothing to tell apart.",
                hint="Send rows of at least two classes.",
                param="dataset.train",
            )
        counts = self._counts(train)
        self._notes += describe(label_map, counts, None if held_out is None else self._counts(held_out))
        self.class_weights = self._weights(label_map, counts, len(train))
        ids = label_map.ids
        return self._numbered(train, ids), None if held_out is None else self._numbered(held_out, ids)

    def notes(self) -> list[str]:
        return [f"The problem is {self.problem}.", *self._notes, *(f"Labels: {note}." for note in self._census.notes())]

    # -- one row ------------------------------------------------------------------------------------------------------

    def _row(self, draft: LabelExample, ids: list[int], type_ids: list[int] | None, has_pairs: bool) -> Labelled:
        n_dropped = max(0, len(ids) - self._max_length)
        if n_dropped:
            pair = (draft.text_pair or "") if has_pairs else None
            out = self._tokenizer(draft.text, pair, truncation=True, max_length=self._max_length, verbose=False)
            ids, type_ids = out["input_ids"], out.get("token_type_ids")
        return Labelled(array("i", ids), None if type_ids is None else array("i", type_ids), draft.label, n_dropped)

    # -- all rows -----------------------------------------------------------------------------------------------------

    def _settle_problem(self) -> Problem:
        kind, asked = self._census.kind, self._options.problem
        natural: Problem = "multi_label" if kind == "list" else "regression" if kind == "number" else "single_label"
        if asked in ("auto", natural):
            return natural
        if asked == "regression" and kind == "integer":
            return "regression"
        what = {"list": "lists of names", "number": "numbers with a fraction"}.get(str(kind), f"{kind}s")
        raise _does_not_fit(f"The labels are {what}, which is no {asked} problem.", f"Use {natural}, or auto.", PARAM)

    def _settle_numbers(
        self, train: list[Labelled], held_out: list[Labelled] | None
    ) -> tuple[list[Labelled], list[Labelled] | None]:
        if self._options.class_weights != "none":
            raise _does_not_fit(
                "Class weights need classes, and this is regression.", "Leave them out.", "classification.class_weights"
            )
        self.names, self.class_weights = (self._column,), None
        return (
            [replace(row, label=float(row.label)) for row in train],
            None if held_out is None else [replace(row, label=float(row.label)) for row in held_out],
        )

    def _names_of(self, label: Label) -> list[str]:
        return list(label) if isinstance(label, tuple) else [name_of(self._census.typed(label))]

    def _counts(self, rows: list[Labelled]) -> Counter[str]:
        return Counter(name for row in rows for name in self._names_of(row.label))

    def _numbered(self, rows: list[Labelled], ids: dict[str, int]) -> list[Labelled]:
        if self.problem == "single_label":
            return [replace(row, label=ids[self._names_of(row.label)[0]]) for row in rows]
        labels = [{ids[name] for name in self._names_of(row.label)} for row in rows]
        return [
            replace(row, label=tuple(int(index in mine) for index in range(len(ids))))
            for row, mine in zip(rows, labels, strict=True)
        ]

    def _weights(self, label_map: LabelMap, counts: Counter[str], n_rows: int) -> list[float] | None:
        """Balanced as in scikit-learn's compute_class_weight; with several labels a row, no's over yes's. A class
        without train rows weighs 1, which changes nothing."""
        asked = self._options.class_weights
        if asked == "none":
            return None
        if isinstance(asked, dict):
            unknown = sorted(set(asked) - set(label_map.names))
            if unknown:
                hint = f"The labels are {', '.join(label_map.names[:20])}."
                message = f"class_weights names {unknown[0]!r}, which is no label of these rows."
                raise _does_not_fit(message, hint, "classification.class_weights")
            return [float(asked.get(name, 1.0)) for name in label_map.names]
        if self.problem == "multi_label":
            return [(n_rows - counts[name]) / counts[name] if counts[name] else 1.0 for name in label_map.names]
        n_classes = sum(1 for name in label_map.names if counts[name])
        return [n_rows / (n_classes * counts[name]) if counts[name] else 1.0 for name in label_map.names]


def _does_not_fit(message: str, hint: str, param: str) -> Fault:
    return Fault(CauseCode.CONFIG_INVALID, message, hint=hint, param=param)
