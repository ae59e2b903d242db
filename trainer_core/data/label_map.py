"""From the labels of all rows to stable class numbers, and what people should know of them. Torch-free.

The map is made of the union of train and eval rows: a class that one of them lacks has its number all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from trainer_core.contract import CauseCode, RunConfig
from trainer_core.data.labels import LabelCensus
from trainer_core.data.report import LabelKind
from trainer_core.methods_table import Directions
from trainer_core.run.faults import Fault

MAX_SHOWN = 20


@dataclass(frozen=True)
class LabelMap:
    """Names in order of their numbers: whole numbers by value, other names as text."""

    names: tuple[str, ...]
    kind: LabelKind

    @property
    def ids(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.names)}


def name_of(label: object) -> str:
    """A label as a model's config names it."""
    return str(label).lower() if isinstance(label, bool) else str(label)


def make_map(census: LabelCensus, param: str) -> LabelMap:
    """Raises Fault(data_invalid) where there are too many labels for classes."""
    kind = census.kind
    if kind is None or not census.listed:
        raise Fault(
            CauseCode.DATA_INVALID,
            f"The rows have {census.n_labels:,} different labels, too many for classes.",
            hint="See whether dataset.columns names the right column.",
            param=param,
        )
    names = {name_of(census.typed(text)) for text in census.listed}
    return LabelMap(tuple(sorted(names, key=lambda name: (int(name), "") if kind == "integer" else (0, name))), kind)


def describe(label_map: LabelMap, train: Counter[str], held_out: Counter[str] | None) -> list[str]:
    """Notes: how often each label stands in the train rows, and which ones one of the two parts lacks."""
    shown = [f"{index} {name} ({train[name]:,})" for index, name in enumerate(label_map.names[:MAX_SHOWN])]
    more = f" and {len(label_map.names) - MAX_SHOWN} more" if len(label_map.names) > MAX_SHOWN else ""
    notes = [f"Labels by number, with their count in the train rows: {', '.join(shown)}{more}."]
    unlearnt = [name for name in label_map.names if not train[name]]
    if unlearnt:
        notes.append(f"Labels that stand in the eval rows alone and cannot be learnt: {_listed(unlearnt)}.")
    unseen = [name for name in label_map.names if held_out is not None and not held_out[name]]
    if unseen:
        notes.append(f"Labels that no eval row has, so that no figure tells of them: {_listed(unseen)}.")
    return notes


def check_metric(config: RunConfig, computed: Directions) -> None:
    """Raises Fault(config_invalid) if best is to be decided by a figure that these rows cannot yield."""
    wanted = config.metric_for_best
    full = wanted if wanted.startswith("eval_") else f"eval_{wanted}"
    if wanted != "loss" and full not in {"eval_loss", *computed}:
        raise Fault(
            CauseCode.CONFIG_INVALID,
            f"{wanted} is to decide which checkpoint is best, and an evaluation of these rows does not compute it.",
            hint=f"It computes {', '.join(sorted({'eval_loss', *computed}))}.",
            param="training.metric_for_best_model",
        )


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:MAX_SHOWN]) + (", ..." if len(names) > MAX_SHOWN else "")
