"""Reads one training option after the other: old names translated, every value held to its kind and bounds.

What options mean together is judged in `arguments.py`. Torch-free.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trainer_core.arguments.gone import GENERATION, GENERATION_REASON, REFUSED, RENAMED, Refused
from trainer_core.arguments.table import ACCEPTED, GENERATING, TAKEN_OVER_HERE, Option
from trainer_core.numbers import as_number, as_whole
from trainer_core.problems import Problem, nearest, show, unknown_key

PREFIX = "training."
_LONGEST_TEXT = 1000


@dataclass
class Reading:
    """What has been read so far; `values` are in the release's names."""

    values: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def refuse(
        self, name: str, message: str, code: str = "invalid_value", *, hint: str | None = None, found: object = ...
    ) -> None:
        shown = None if found is ... else show(found, name)
        self.problems.append(Problem(PREFIX + name, message, code, hint, shown))

    def was_refused(self, *names: str) -> bool:
        """Whether one of the options is already in trouble, so that no second problem follows from the first."""
        return any(problem.param == PREFIX + name for problem in self.problems for name in names)


def read(training: Mapping[str, Any], *, device: Literal["cpu", "cuda"], generates: bool = False) -> Reading:
    """Every option given, by its name in the release. `null` means not given; an unknown name never passes.

    `generates` says whether the method can generate while it evaluates, and so takes the options for that.
    """
    reading = Reading()
    for name, value in training.items():
        if generates and name in GENERATING:
            if value is not None:
                _take(reading, name, value, spelled=name)
        elif generates and name in GENERATION:
            hint = f'Give it as training.generation_config: {{"{name}": ...}}.'
            reading.refuse(name, "is a setting of generation", "not_served", hint=hint, found=value)
        elif name in RENAMED:
            _translate(reading, name, value)
        elif name in ACCEPTED or name in TAKEN_OVER_HERE:
            if value is not None:
                _take(reading, name, value, spelled=name)
        elif name in REFUSED:
            _turn_away(reading, name, value, REFUSED[name], device)
        elif name in GENERATION:
            if value is not None:
                reading.refuse(name, GENERATION_REASON, "not_served", found=value)
        else:
            reading.problems.append(unknown_key(PREFIX + name, name, [*ACCEPTED, *TAKEN_OVER_HERE, *RENAMED]))
    return reading


# Names ----------------------------------------------------------------------------------------------------------------


def _translate(reading: Reading, old: str, value: Any) -> None:
    """An older name: its value goes under the release's name, and a note says so."""
    new = RENAMED[old]
    if value is None:
        return
    if old in ("adafactor", "group_by_length"):
        if not isinstance(value, bool):
            reading.refuse(old, "expected true or false", found=value)
        elif value:
            _take(reading, new, {"adafactor": "adafactor", "group_by_length": "group_by_length"}[old], spelled=old)
        return
    if old == "warmup_ratio" and _number_or_none(value) is not None and not 0 <= as_number(value) < 1:
        reading.refuse(old, "expected a share of all steps, at least 0 and under 1", "out_of_range", found=value)
        return
    _take(reading, new, value, spelled=old)


def _take(reading: Reading, name: str, value: Any, *, spelled: str) -> None:
    """Reads a value for `name`, which the body spelled `spelled`; both spellings given must agree."""
    option = ACCEPTED.get(name) or GENERATING.get(name)
    try:
        read_value = _TAKEN_OVER[name](value) if option is None else _READERS[option.kind](option, value)
    except ValueError as error:
        message, _, hint = str(error).partition("\n")
        code = "out_of_range" if message.startswith("must be") else "invalid_value"
        reading.refuse(spelled, message, code, hint=hint or None, found=value)
        return
    if read_value is None:
        return
    if name in reading.values and reading.values[name] != read_value:
        earlier = reading.values[name]
        if name == "warmup_steps" and 0 in (earlier, read_value):
            # A dump of older arguments holds warmup_ratio 0.0 beside warmup_steps, or the other way round.
            reading.values[name] = max(earlier, read_value)
            return
        message = f"says {show(read_value, name)} where another spelling of `{name}` says {show(earlier, name)}"
        reading.refuse(spelled, message, "conflict", hint=f"Give `{name}` alone.")
        return
    if spelled != name:
        reading.notes.append(f"training.{spelled} is called {name} in this release and was taken as {name}.")
    reading.values[name] = read_value


def _turn_away(reading: Reading, name: str, value: Any, rule: Refused, device: str) -> None:
    """A name the job may not set: dropped when it asks for nothing, noted, or refused with who owns it."""
    if value is None or any(type(value) is type(harmless) and value == harmless for harmless in rule.harmless):
        return
    if name in ("use_cpu", "no_cuda") and value is True and device == "cpu":
        return
    if rule.noted:
        reading.notes.append(f"training.{name} was left out: {rule.reason}.")
        return
    reading.refuse(name, rule.reason, rule.code, hint=f"Leave `{name}` out.", found=value)


# Values ---------------------------------------------------------------------------------------------------------------
# A reader returns the value to use, null where the value says "not set", or raises ValueError("message\nhint").


def _bool(_option: Option, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _number(option: Option, value: object) -> float:
    return _within(option, as_number(value))


def _whole(option: Option, value: object) -> int:
    return int(_within(option, as_whole(value)))


def _within(option: Option, number: float) -> float:
    bounds = (
        (option.at_least, operator.ge, "at least"),
        (option.over, operator.gt, "over"),
        (option.at_most, operator.le, "at most"),
        (option.under, operator.lt, "under"),
    )
    wanted = [f"{word} {bound:g}" for bound, _, word in bounds if bound is not None]
    if not all(holds(number, bound) for bound, holds, _ in bounds if bound is not None):
        raise ValueError(f"must be {' and '.join(wanted)}")
    return number


def _cadence(_option: Option, value: object) -> float:
    """A number of steps, or a share of all steps when it is under 1."""
    number = as_number(value)
    if number <= 0:
        raise ValueError("must be over 0\nGive a number of steps, or a share of all steps under 1.")
    return as_whole(value) if number >= 1 else number


def _warmup(_option: Option, value: object) -> float:
    number = as_number(value)
    if number < 0:
        raise ValueError("must be at least 0\nGive a number of steps, or a share of all steps under 1.")
    if number >= 1:
        return as_whole(value)
    return number or 0


def _max_steps(_option: Option, value: object) -> int | None:
    steps = as_whole(value)
    if steps == -1:
        return None
    if steps <= 0:
        raise ValueError("must be at least 1\nLeave it out to train for num_train_epochs.")
    return steps


_OLD_OPTIMIZERS = {"adamw_hf": "adamw_torch", "adamw_apex_fused": "adamw_torch_fused"}
_NO_CHECKPOINT_WORDS = {"save_strategy": ("no", "best"), "logging_strategy": ("no",)}


def _choice(option: Option, value: object) -> str | None:
    """One of the names. A strategy that would leave the run without records or checkpoints counts as not set."""
    if not isinstance(value, str):
        raise ValueError(f"expected one of {', '.join(option.choices[:12])}")
    if option.name == "optim" and value in _OLD_OPTIMIZERS:
        return _OLD_OPTIMIZERS[value]
    if value in _NO_CHECKPOINT_WORDS.get(option.name, ()):
        return None
    if value not in option.choices:
        near = nearest(value, option.choices)
        hint = f"Did you mean `{near}`?" if near else f"Valid: {', '.join(option.choices)}."
        raise ValueError(f"unknown name for {option.name}\n{hint}")
    return value


def _text(option: Option, value: object) -> str | list[str]:
    if isinstance(value, str) and 0 < len(value) <= _LONGEST_TEXT:
        return value
    names = value if isinstance(value, list) else []
    if option.name == "optim_target_modules" and names and all(isinstance(name, str) for name in names):
        return list(names)
    raise ValueError(f"expected text of 1 to {_LONGEST_TEXT} characters")


def _object(_option: Option, value: object) -> dict[str, Any] | None:
    """An object, or its JSON text as a command line gives it. Numbers in text become numbers."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError(f"expected an object, or its JSON text; found text that is not JSON ({error})") from error
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError("expected an object with names as keys")
    return {key: _scalar(key, inner) for key, inner in value.items()} or None


def _generation(option: Option, value: object) -> dict[str, Any] | None:
    """An object of GenerationConfig's names; the release itself judges the values before the first step."""
    if isinstance(value, str):
        raise ValueError(
            "expected an object of generation settings\nFiles and hub ids are not read: give the settings."
        )
    if not isinstance(value, Mapping):
        raise ValueError("expected an object of generation settings")
    for key in value:
        if key not in GENERATION and key != "use_cache":
            near = nearest(str(key), GENERATION)
            raise ValueError(f"unknown name {show(key)}\n" + (f"Did you mean `{near}`?" if near else ""))
    return dict(value) or None


def _scalar(key: str, value: object) -> object:
    if isinstance(value, str):
        number = _number_or_none(value)
        if number is None:
            return value
        return int(number) if value.lstrip("+-").isdigit() else number
    if isinstance(value, float):
        return as_number(value)
    if value is None or isinstance(value, bool | int):
        return value
    raise ValueError(f"expected text, a number, true, false or null under `{key}`")


def _number_or_none(value: object) -> float | None:
    try:
        return as_number(value)
    except ValueError:
        return None


_READERS: dict[str, Callable[[Option, object], Any]] = {
    "bool": _bool,
    "number": _number,
    "whole": _whole,
    "cadence": _cadence,
    "warmup": _warmup,
    "max_steps": _max_steps,
    "choice": _choice,
    "text": _text,
    "object": _object,
    "generation": _generation,
}

_SEED = Option("seed", "whole", "", at_least=0, at_most=2**32 - 1)
_LIMIT = Option("save_total_limit", "whole", "", at_least=0)
_METRIC = Option("metric_for_best_model", "text", "")
_FLAG = Option("", "bool", "")
_TAKEN_OVER: dict[str, Callable[[object], Any]] = {
    "seed": lambda value: _whole(_SEED, value),
    "save_total_limit": lambda value: _whole(_LIMIT, value),
    "metric_for_best_model": lambda value: _text(_METRIC, value),
    "greater_is_better": lambda value: _bool(_FLAG, value),
    "load_best_model_at_end": lambda value: _bool(_FLAG, value),
}


def known_names() -> Collection[str]:
    """Every name this release of the service knows, whether it takes it or not."""
    return frozenset({*ACCEPTED, *TAKEN_OVER_HERE, *RENAMED, *REFUSED, *GENERATION})
