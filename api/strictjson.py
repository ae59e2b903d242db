"""Strict JSON for request bodies: what the standard parser takes and a database or a trainer later chokes on.

Refused: NaN and Infinity, numbers beyond a float or 64 bits, a key given twice, half a surrogate pair, NUL, deep
nesting.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, NoReturn

from api.core.errors import Invalid

MAX_DEPTH = 32
MAX_INTEGER = 2**63
MAX_DIGITS = 40


def parse(body: bytes) -> Any:
    """The value in `body`. Raises Invalid (code `json_invalid`) with the place and what to write instead."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refused(f"byte {error.start} is not UTF-8; send the body as UTF-8") from error
    try:
        value = json.loads(
            text,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_integer,
            object_pairs_hook=_object,
        )
    except json.JSONDecodeError as error:
        raise _refused(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise _too_deep() from error
    for string in _strings(value):
        _check_text(string)
    return value


def _constant(name: str) -> NoReturn:
    raise _refused(f"{name} is not JSON; leave the key out or write null")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _refused(f"the number {digits[:MAX_DIGITS]} is too large for a 64-bit float")
    return value


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS or not -MAX_INTEGER <= int(digits) < MAX_INTEGER:
        raise _refused(f"the number {digits[:MAX_DIGITS]} does not fit into 64 bits")
    return int(digits)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _refused(f"the key {twice[:100]!r} is given twice in one object; keep one of them", param=twice[:100])
    return value


def _strings(value: Any) -> Iterator[str]:
    """Every key and string in `value`; no recursion, so that depth is ours to limit."""
    waiting = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise _too_deep()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            yield from item
            waiting.extend((inner, depth + 1) for inner in item.values())
        elif isinstance(item, list):
            waiting.extend((inner, depth + 1) for inner in item)


def _check_text(text: str) -> None:
    if "\0" in text:
        raise _refused(f"the text {text[:40]!r} holds a NUL character; remove it")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _refused(
            f"character {error.start} of a text is half of a surrogate pair; send the whole character"
        ) from error


def _too_deep() -> Invalid:
    return _refused(f"it is nested deeper than {MAX_DEPTH} levels")


def _refused(why: str, *, param: str | None = None) -> Invalid:
    return Invalid(f"the body is not JSON we can take: {why}", code="json_invalid", param=param)
