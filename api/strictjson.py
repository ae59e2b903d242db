"""Strict JSON for request bodies: what the standard parser takes and a database or a trainer later chokes on.

Refused, with the path of the value: NaN and Infinity, numbers beyond a float or 64 bits, a key given twice, half a
surrogate pair, NUL, deep nesting, thousands of keys.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from api.core.errors import Invalid

MAX_DEPTH = 32
# The nearest valid name is looked for at every unknown key: 300,000 of them, which 4 MiB hold, took 40 seconds.
MAX_KEYS = 5000
MAX_INTEGER = 2**63
LONGEST_SHOWN = 40
SURROGATE = re.compile("[\ud800-\udfff]")


def parse(body: bytes) -> Any:
    """The value in `body`. Raises Invalid: code `json_invalid` when it is no JSON, `invalid_value` for a bad value."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _no_json(f"byte {error.start} is not UTF-8; send the body as UTF-8") from error
    try:
        value = json.loads(
            text, parse_constant=_Refused, parse_float=_float, parse_int=_integer, object_pairs_hook=_object
        )
    except json.JSONDecodeError as error:
        raise _no_json(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise _no_json(f"it is nested deeper than {MAX_DEPTH} levels") from error
    for path, item in _walk(value):
        _check(path, item)
    return value


class _Refused:
    """Stands where a number stood that cannot be taken, until its path is known."""

    def __init__(self, written: str) -> None:
        self.written = written[:LONGEST_SHOWN]


def _float(digits: str) -> float | _Refused:
    value = float(digits)
    return value if math.isfinite(value) else _Refused(digits)


def _integer(digits: str) -> int | _Refused:
    # Longer text is not even read: turning it into a number takes time that grows with its square.
    if len(digits) > LONGEST_SHOWN or not -MAX_INTEGER <= int(digits) < MAX_INTEGER:
        return _Refused(digits)
    return int(digits)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0][:LONGEST_SHOWN]
        raise _no_json(f"the key {twice!r} is given twice in one object; keep one of them")
    return value


def _walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key and value with its path; no recursion, so that depth is ours to limit."""
    waiting = [("", value, 1)]
    n_keys = 0
    while waiting:
        path, item, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise _no_json(f"it is nested deeper than {MAX_DEPTH} levels")
        yield path, item
        if isinstance(item, dict):
            n_keys += len(item)
            if n_keys > MAX_KEYS:
                raise _no_json(f"it has more than {MAX_KEYS} keys")
            yield from ((path, key) for key in item)
            waiting += [(f"{path}.{key}" if path else key, inner, depth + 1) for key, inner in item.items()]
        elif isinstance(item, list):
            waiting += [(f"{path}[{index}]", inner, depth + 1) for index, inner in enumerate(item)]


def _check(path: str, item: Any) -> None:
    if isinstance(item, _Refused):
        if item.written in {"NaN", "Infinity", "-Infinity"}:
            raise _no_json(f"{item.written} is no JSON; leave the key out or write null", param=path)
        raise _bad_value(path, f"the number {item.written} is too large (64-bit whole numbers, finite floats)")
    if isinstance(item, str):
        if "\0" in item:
            raise _bad_value(path, "a NUL character cannot be kept; remove it")
        if not item.isascii() and SURROGATE.search(item):
            raise _bad_value(path, "half of a surrogate pair cannot be kept; send the whole character")


def _no_json(why: str, *, param: str | None = None) -> Invalid:
    return Invalid(f"the body is not JSON that can be taken: {why}", code="json_invalid", param=_shown(param))


def _bad_value(path: str, why: str) -> Invalid:
    param = _shown(path)
    message = f"{param or 'the body'}: {why}"
    fault = {"param": param, "message": message, "code": "invalid_value", "hint": None}
    return Invalid(message, code="invalid_value", param=param, details=[fault])


def _shown(path: str | None) -> str | None:
    """A path that can be answered: cut, and without what could not be written as UTF-8."""
    return path[:200].encode("utf-8", "replace").decode() if path else None
