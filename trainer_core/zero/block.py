"""Reads a job's own DeepSpeed block against the schema: every key at every depth, every value by the number rule.

Who owns a number is judged in `zero.py`. Torch-free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainer_core.numbers import as_count, as_number
from trainer_core.problems import Problem, nearest, show, unknown_key
from trainer_core.zero.schema import OPTIMIZERS, SCHEDULERS, SCHEMA, Block, Key, Refused

PREFIX = "parallel.deepspeed"
AUTO = "auto"
_DEEPEST = 6


def read(block: Mapping[str, Any], stage: int, device: str) -> tuple[dict[str, Any], list[Problem]]:
    """(the block with numbers as numbers and names as DeepSpeed spells them, what is wrong with it)."""
    problems: list[Problem] = []
    schema = {**SCHEMA, "scheduler": _scheduler_schema(block.get("scheduler"))}
    values = _read_block(block, schema, PREFIX, stage, device, problems)
    _read_type(values, "optimizer", OPTIMIZERS, "It is asked for by training.optim.", problems)
    names = {name.casefold(): name for name in SCHEDULERS}
    _read_type(values, "scheduler", names, "The schedule is asked for by training.lr_scheduler_type.", problems)
    return values, problems


def _scheduler_schema(scheduler: Any) -> Block:
    """The parameters depend on the schedule's name; an unknown name is refused by `_read_type`, so all pass here."""
    name = scheduler.get("type") if isinstance(scheduler, Mapping) else None
    known = {schedule.casefold(): parameters for schedule, (_, parameters) in SCHEDULERS.items()}
    every: Block = {key: node for _, parameters in SCHEDULERS.values() for key, node in parameters.items()}
    parameters = known.get(name.casefold(), every) if isinstance(name, str) else every
    return {"type": Key("text"), "params": parameters}


def _read_type(
    values: dict[str, Any], part: str, names: Mapping[str, str], advice: str, problems: list[Problem]
) -> None:
    if not isinstance(values.get(part), dict):
        return
    name = values[part].get("type")
    param = f"{PREFIX}.{part}.type"
    if name is None:
        if not any(problem.param.startswith(param) for problem in problems):
            problems.append(Problem(param, "is required and was not given", "missing", f"Valid: {_list(names)}."))
    elif name.casefold() not in names:
        near = nearest(name, names.values())
        hint = f"Did you mean `{near}`?" if near else f"Valid: {_list(names)}. {advice}"
        problems.append(Problem(param, f"no {part} a block may name", "not_served", hint, show(name)))
    else:
        values[part]["type"] = names[name.casefold()]


def _list(names: Mapping[str, str]) -> str:
    return ", ".join(sorted(set(names.values())))


def _read_block(
    block: Mapping[str, Any], schema: Block, path: str, stage: int, device: str, problems: list[Problem]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in block.items():
        node, param = schema.get(name), f"{path}.{name}"
        if node is None:
            problems.append(unknown_key(param, str(name), schema))
        elif isinstance(node, Refused):
            hint = f"Use {node.successor}." if node.successor else "Leave it out."
            problems.append(Problem(param, node.reason, "not_served", hint, show(value, param)))
        elif value is None:
            continue
        elif isinstance(node, Key):
            _read_key(values, name, value, node, param, stage, device, problems)
        elif isinstance(value, Mapping) and param.count(".") <= _DEEPEST:
            values[name] = _read_block(value, node, param, stage, device, problems)
        else:
            problems.append(Problem(param, "expected an object", "invalid_value", None, show(value, param)))
    return values


def _read_key(
    values: dict[str, Any],
    name: str,
    value: Any,
    key: Key,
    param: str,
    stage: int,
    device: str,
    problems: list[Problem],
) -> None:
    where = _cannot_act(key, stage, device, value)
    if where is not None:
        problems.append(Problem(param, where[0], "conflict", where[1], show(value, param)))
        return
    if value == AUTO:
        if key.auto:
            values[name] = AUTO
        elif path_is_zero(param):
            # DeepSpeed's own models take "auto" as "not given" (DeepSpeedConfigModel); elsewhere it would be text.
            pass
        else:
            problems.append(Problem(param, 'nobody completes "auto" here', "invalid_value", "Give a value.", "'auto'"))
        return
    try:
        values[name] = _READERS[key.kind](key, value)
    except ValueError as error:
        problems.append(Problem(param, str(error), "invalid_value", None, show(value, param)))


def path_is_zero(param: str) -> bool:
    return param.startswith(f"{PREFIX}.zero_optimization.")


def _cannot_act(key: Key, stage: int, device: str, value: Any) -> tuple[str, str] | None:
    """(why the key does nothing in this job, what to do), or null. Saying that something is off always acts."""
    if value is False or value == "none":
        return None
    if stage not in key.stages:
        stages = " or ".join(str(wanted) for wanted in key.stages)
        return f"acts at ZeRO stage {stages} only, and this job is at stage {stage}", "Leave it out, or set zero_stage."
    if key.cuda_only and device != "cuda":
        return f"acts on CUDA devices only, and this job runs on {device}", "Leave it out."
    return None


# Values -----------------------------------------------------------------------------------------------------------


def _bool(_key: Key, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _count(key: Key, value: Any) -> int:
    return int(_at_least(key, as_count(value)))


def _number(key: Key, value: Any) -> float:
    return _at_least(key, as_number(value))


def _at_least(key: Key, number: float) -> float:
    if number < key.at_least:
        raise ValueError(f"must be at least {key.at_least:g}")
    return number


def _text(_key: Key, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 500:
        raise ValueError("expected text of 1 to 500 characters")
    return value


def _choice(key: Key, value: Any) -> str:
    if not isinstance(value, str) or value not in key.choices:
        raise ValueError(f"expected one of {', '.join(key.choices)}")
    return value


def _names(_key: Key, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError("expected a list of names")
    return list(value)


def _pair(key: Key, value: Any) -> list[float]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("expected a list of two numbers")
    return [_number(key, number) for number in value]


_READERS: dict[str, Callable[[Key, Any], Any]] = {
    "bool": _bool,
    "count": _count,
    "number": _number,
    "text": _text,
    "choice": _choice,
    "names": _names,
    "pair": _pair,
}
