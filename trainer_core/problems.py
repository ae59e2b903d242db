"""What is wrong with a job's options, in one shape: the field, what was found, what was expected, what to do.

Options are refused all at once, never one a request. Torch-free; pydantic and the standard library only.
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_LONGEST_SHOWN = 60
_CONTAINER = re.compile(r"(list|dict|set|tuple)\[.*\]")
_SECRET = re.compile(r"token|secret|password|passwd|api_?key|credential|authorization", re.IGNORECASE)


@dataclass(frozen=True)
class Problem:
    """One thing wrong with the options."""

    param: str
    """Path of the field, as in the job body: `training.learning_rate`, `adapter.alhpa`, `dataset.files[2]`."""
    message: str
    """What was found and what was expected."""
    code: str
    """Stable: unknown_key missing invalid_value owned_by_service not_served gone conflict out_of_range no_steps."""
    hint: str | None = None
    """What to do about it."""
    found: str | None = None
    """The found value, cut; hidden where the field's name speaks of a secret."""

    def __str__(self) -> str:
        found = f" (found {self.found})" if self.found is not None else ""
        hint = f" {self.hint}" if self.hint else ""
        return f"{self.param}: {self.message}{found}.{hint}"


class OptionsInvalid(Exception):
    """The options cannot run. Holds every problem found, in the order of the job body."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate a person most likely meant, or null when none is near."""
    by_folded = {candidate.casefold(): candidate for candidate in candidates}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else _nearest_by_word(name.casefold(), by_folded)


def _nearest_by_word(name: str, by_folded: Mapping[str, str]) -> str | None:
    """`alhpa` for `lora_alpha`: the shortest candidate with a word that is nearly the same."""
    words = {word: full for full in sorted(by_folded, key=len, reverse=True) for word in full.split("_")}
    found = difflib.get_close_matches(name, [word for word in words if len(word) > 2], n=1, cutoff=0.75)
    return by_folded[words[found[0]]] if found else None


def unknown_key(param: str, name: str, candidates: Iterable[str]) -> Problem:
    """An unknown key at any depth, with the nearest valid name or, when none is near, the valid ones."""
    valid = sorted(candidates)
    near = nearest(name, valid)
    if near is not None:
        hint = f"Did you mean `{near}`?"
    elif len(valid) <= 20:
        hint = f"Valid here: {', '.join(valid) or 'no key at all'}."
    else:
        hint = None
    return Problem(param, f"unknown key `{cut(name)}`", "unknown_key", hint)


def cut(text: str) -> str:
    """Text short enough to repeat in an answer."""
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def show(value: object, param: str = "") -> str:
    """A found value as an answer may repeat it: cut, containers only counted, secrets hidden."""
    if isinstance(value, Mapping):
        return f"an object with {len(value)} keys"
    if isinstance(value, list | tuple) and len(str(value)) > _LONGEST_SHOWN:
        return f"a list of {len(value)}"
    if _SECRET.search(param.rpartition(".")[2]) and value is not None and not isinstance(value, bool):
        return "(hidden)"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a whole number of {value.bit_length()} bits"
    return cut(repr(value))


def from_validation_error(error: ValidationError, model: type[BaseModel], prefix: str = "") -> list[Problem]:
    """Pydantic's complaints about `model` as problems, one a path; `prefix` stands before every path.

    Unknown keys at any depth carry their full path and the nearest name among the fields of the model at that depth.
    Pydantic puts labels of union members into its paths; they are taken out. Where every member of a union refused a
    value, its complaints are joined into one problem.
    """
    by_param: dict[str, Problem] = {}
    for details in error.errors(include_url=False):
        problem = _problem(details, model, prefix)
        earlier = by_param.get(problem.param)
        if earlier is not None and problem.message not in earlier.message:
            problem = Problem(
                problem.param, f"{earlier.message}, or {problem.message}", earlier.code, earlier.hint, earlier.found
            )
        by_param[problem.param] = problem
    return list(by_param.values())


def _problem(details: ErrorDetails, model: type[BaseModel], prefix: str) -> Problem:
    kind = details["type"]
    path, types_here, last = _walk(details["loc"], model, prefix, is_unknown_key=kind == "extra_forbidden")
    if kind == "extra_forbidden":
        models = [candidate for candidate in types_here if _is_model(candidate)]
        for one in models:
            if last in (why := getattr(one, "refused", {})):
                return Problem(
                    path, f"`{last}` {why[last]}", "not_served", "Leave it out.", show(details["input"], path)
                )
        return unknown_key(path, last, [name for candidate in models for name in _names(candidate)])
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _no_member(details, path, types_here)
    if kind == "missing":
        return Problem(path, "is required and was not given", "missing")
    message = details["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    message = message[:1].lower() + message[1:]
    hint = None
    if kind in ("literal_error", "enum") and isinstance(details["input"], str):
        choices = re.findall(r"'([^']*)'", str(details.get("ctx", {}).get("expected", "")))
        near = nearest(details["input"], choices)
        hint = f"Did you mean `{near}`?" if near else None
    return Problem(path, cut_message(message), "invalid_value", hint, show(details["input"], path))


def _no_member(details: ErrorDetails, path: str, types_here: Iterable[Any]) -> Problem:
    """A block whose `type` none of a union's members has."""
    kinds = sorted(str(tag) for one in types_here if _is_model(one) for tag in _kinds(one))
    found = details["input"].get("type") if isinstance(details["input"], Mapping) else details["input"]
    if not isinstance(details["input"], Mapping):
        message = f"expected an object with a `type`, one of {', '.join(kinds)}"
        return Problem(path, message, "invalid_value", None, show(found, path))
    near = nearest(found, kinds) if isinstance(found, str) else None
    hint = f"Did you mean `{near}`?" if near else None
    return Problem(_join(path, "type"), f"expected one of {', '.join(kinds)}", "invalid_value", hint, show(found, path))


def _kinds(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("type")
    return get_args(field.annotation) if field is not None and get_origin(field.annotation) is Literal else ()


def cut_message(message: str) -> str:
    return message if len(message) <= 300 else message[:297] + "..."


# A path is walked along the model's annotations: only so is it known what is a key and what a union's label.


def _walk(
    loc: Sequence[str | int], model: type[BaseModel], prefix: str, *, is_unknown_key: bool
) -> tuple[str, list[Any], str]:
    """(path, the types that stood where the walk ended, last part). For an unknown key: the types that lack it."""
    path, here = prefix, [model]
    for index, part in enumerate(loc):
        if is_unknown_key and index == len(loc) - 1:
            return _join(path, part), here, str(part)
        step = None if _is_container_label(here, part) else _step(here, part)
        if step is None:
            here = _narrow(here, str(part))
            continue
        path, here = _join(path, part), step
    return path, here, str(loc[-1]) if loc else ""


def _join(path: str, part: str | int) -> str:
    if isinstance(part, int):
        return f"{path}[{part}]"
    return f"{path}.{cut(part)}" if path else cut(part)


def _step(here: Iterable[Any], part: str | int) -> list[Any] | None:
    """The types one key or index further in; null when `part` is no key here but a union's label."""
    found: list[Any] = []
    for candidate in here:
        if _is_model(candidate):
            names = _names(candidate)
            if part in names:
                found += _members(candidate.model_fields[names[str(part)]].annotation)
        elif get_origin(candidate) in (list, tuple, set, frozenset) and isinstance(part, int):
            for inner in get_args(candidate):
                found += _members(inner)
        elif get_origin(candidate) is dict and part != "[key]":
            found += _members(get_args(candidate)[1])
    return found or None


def _is_container_label(here: Sequence[Any], part: str | int) -> bool:
    """Whether a part is pydantic's name for the list or dict among a union's members."""
    return isinstance(part, str) and len(here) > 1 and _CONTAINER.fullmatch(part) is not None


def _narrow(here: list[Any], label: str) -> list[Any]:
    """Keeps the union member a label names: its class, or the value of its discriminating field."""
    if found := _CONTAINER.fullmatch(label):
        return [c for c in here if getattr(get_origin(c), "__name__", "") == found[1]] or here
    named = [c for c in here if _is_model(c) and (c.__name__ == label or label in _tags(c))]
    return named or here


def _tags(model: type[BaseModel]) -> set[str]:
    literals = [f.annotation for f in model.model_fields.values() if get_origin(f.annotation) is Literal]
    return {str(value) for literal in literals for value in get_args(literal)}


def _members(annotation: Any) -> list[Any]:
    """The plain types an annotation stands for: unions and Annotated are opened, None is left out."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _members(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [member for inner in get_args(annotation) for member in _members(inner)]
    return [] if annotation is type(None) else [annotation]


def _names(model: type[BaseModel]) -> dict[str, str]:
    """Name in the body -> field name; an alias stands for its field."""
    return {field.alias or name: name for name, field in model.model_fields.items()}


def _is_model(candidate: Any) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, BaseModel)
