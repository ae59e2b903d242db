"""Labels and tags: what one may be, and what all of a file's labels are together.

Pure: standard library only. The upload counts with it; a trainer types the labels of all its files with it.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict

from trainer_core.data.decode import json_type
from trainer_core.data.examples import Label
from trainer_core.data.problems import RowFault, quoted
from trainer_core.data.report import LabelKind

MAX_LABELS = 1000
MAX_COUNTED = 10_000
MAX_LABEL_LENGTH = 256
MAX_NOTES = 5
# Only how JSON itself would write them: 01 and 1 are two names, and so are 1 and 1.0.
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?")


def read_label(value: object, field: str) -> Label:
    """One row's label: a text, a number, true or false, or a list of texts. Raises RowFault."""
    if isinstance(value, list):
        names = tuple(_name(item, f"{field}[{index}]") for index, item in enumerate(value))
        if len(set(names)) < len(names):
            raise RowFault("bad_label", "one label stands twice in the list", field)
        return names
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _number(value, field)
    if value is None:
        raise RowFault("empty_label", "the label is null; give one, or leave the row out", field)
    return _name(value, field)


def _name(value: object, field: str) -> str:
    if not isinstance(value, str):
        expected = "a string, number, boolean, or a list of strings"
        raise RowFault("bad_label", f"expected {expected}, found {json_type(value)}", field)
    if not value.strip():
        raise RowFault("empty_label", "the label is empty; give one, or leave the row out", field)
    if len(value) > MAX_LABEL_LENGTH:
        raise RowFault(
            "bad_label", f"the label has {len(value)} characters, the limit is {MAX_LABEL_LENGTH}; is it a text?", field
        )
    return value


def _number(value: float, field: str) -> float:
    if not math.isfinite(value):
        raise RowFault("not_finite", "NaN and infinities cannot be trained on", field)
    if isinstance(value, int) and abs(value) >= 2**63:
        raise RowFault("bad_label", "the whole number does not fit in 64 bits; send it as a string", field)
    return value


def read_tags(value: object, n_tokens: int, field: str) -> tuple[str, ...] | tuple[int, ...]:
    """One tag for each token: all texts, or all whole numbers from 0. Raises RowFault."""
    if not isinstance(value, list):
        raise RowFault("bad_tag", f"expected a list of tags, found {json_type(value)}", field)
    if len(value) != n_tokens:
        raise RowFault("length_mismatch", f"{len(value)} tags stand beside {n_tokens} tokens", field)
    for index, tag in enumerate(value):
        place = f"{field}[{index}]"
        if type(tag) not in (str, int):
            raise RowFault("bad_tag", f"expected a string or a whole number, found {json_type(tag)}", place)
        if isinstance(tag, str) and not (tag.strip() and len(tag) <= MAX_LABEL_LENGTH):
            raise RowFault("bad_tag", f"a tag has 1 to {MAX_LABEL_LENGTH} characters; most often it is O", place)
        if isinstance(tag, int) and not 0 <= tag < 2**31:
            raise RowFault("bad_tag", "a tag's number counts from 0", place)
        if type(tag) is not type(value[0]):
            raise RowFault("mixed_labels", "some tags are strings and some are numbers; send all of one kind", place)
    return tuple(value)


class LabelCensus:
    """Counts labels one by one, sees to it that all are of one kind, and says which. Memory is bounded."""

    def __init__(self, *, reads_texts: bool = True) -> None:
        self.counts: Counter[str] = Counter()
        self._kinds: set[LabelKind] = set()
        self._seen: set[int] = set()  # hashes, once there are too many labels to keep
        self._readings: set[LabelKind] = {"integer", "number", "boolean"} if reads_texts else set()

    def add(self, label: Label, field: str) -> None:
        """Raises RowFault if the label is of another kind than those before."""
        kind = kind_of(label)
        if kind not in self._kinds:
            self._join(kind, field)
        if isinstance(label, tuple):
            for name in label:
                self._count(name)
            return
        if isinstance(label, str) and self._readings:
            self._readings &= _readings(label)
        if kind != "number":
            self._count(str(label).lower() if isinstance(label, bool) else str(label))

    def _join(self, kind: LabelKind, field: str) -> None:
        if self._kinds and {kind, *self._kinds} != {"integer", "number"}:
            before = " and ".join(f"{name}s" for name in sorted(self._kinds))
            message = f"the label is a {kind}, and those before are {before}; send all of one kind"
            raise RowFault("mixed_labels", message, field)
        self._kinds.add(kind)

    def _count(self, name: str) -> None:
        if name in self.counts or (len(self.counts) < MAX_LABELS and not self._seen):
            self.counts[name] += 1
            return
        if not self._seen:
            self._seen.update(map(hash, self.counts))
        if len(self._seen) < MAX_COUNTED:
            self._seen.add(hash(name))

    @property
    def kind(self) -> LabelKind | None:
        """None while there are no labels. Whole numbers beside others are numbers."""
        if "number" in self._kinds:
            return "number"
        kind = next(iter(self._kinds), None)
        if kind == "string":
            order: tuple[LabelKind, ...] = ("boolean", "integer", "number")
            return next((reading for reading in order if reading in self._readings), "string")
        return kind

    @property
    def n_labels(self) -> int:
        return 0 if self.kind == "number" else len(self._seen) or len(self.counts)

    @property
    def listed(self) -> dict[str, int]:
        """How often each label stands, the most frequent first; empty for numbers and for too many labels."""
        return {} if self.kind == "number" or self._seen else dict(self.counts.most_common())

    def typed(self, label: Label) -> Label:
        """A counted label as what all of them are: texts that stand for numbers or truth values become those."""
        kind = self.kind
        if kind == "number" and not isinstance(label, tuple):
            return float(label)
        if isinstance(label, str) and kind == "integer":
            return int(label)
        if isinstance(label, str) and kind == "boolean":
            return label.casefold() == "true"
        return label

    def notes(self) -> list[str]:
        """What people should look at: labels that differ in little, too many of them, texts that became numbers."""
        notes: list[str] = []
        if self._kinds == {"string"} and self.kind != "string":
            notes.append(f"the labels are texts that all stand for {self.kind}s, and are taken as such")
        if self._seen and self.kind != "number":
            n = f"at least {MAX_COUNTED:,}" if len(self._seen) >= MAX_COUNTED else f"{len(self._seen):,}"
            notes.append(f"there are {n} labels; see whether the column is the right one")
            return notes
        if self.kind in ("string", "list"):
            alike: defaultdict[str, list[str]] = defaultdict(list)
            for name in self.counts:
                alike[unicodedata.normalize("NFKC", name).strip().casefold()].append(name)
            groups = [group for group in alike.values() if len(group) > 1]
            for group in groups[:MAX_NOTES]:
                names = " and ".join(f'"{quoted(name, 40)}"' for name in group[:4])
                notes.append(f"{names} differ in case or space only: {len(group)} labels")
            if len(groups) > MAX_NOTES:
                notes.append(f"{len(groups) - MAX_NOTES} more groups of labels differ in case or space only")
        return notes


def kind_of(label: Label) -> LabelKind:
    if isinstance(label, tuple):
        return "list"
    if isinstance(label, bool):
        return "boolean"
    return "string" if isinstance(label, str) else "integer" if isinstance(label, int) else "number"


def _readings(text: str) -> set[LabelKind]:
    """What a text may stand for besides a name."""
    if text.casefold() in ("true", "false"):
        return {"boolean"}
    if _INTEGER.fullmatch(text):
        return {"integer", "number"}
    return {"number"} if _NUMBER.fullmatch(text) else set()
