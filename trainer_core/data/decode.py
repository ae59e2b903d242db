"""Strict JSON for one row: repeated keys, NaN, lone surrogates and great depth, which Python lets pass, are seen.

Pure: standard library only. A fault that leaves the end of the value known is returned, so that a reader can go on.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainer_core.data.problems import RowFault, quoted

# Deep enough for any tool schema, and far from Python's own limit of about 1,000, which also depends on the caller.
MAX_DEPTH = 100
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_TYPE_NAMES: dict[type, str] = {
    str: "string", int: "number", float: "number", bool: "boolean", type(None): "null", list: "array", dict: "object",
}  # fmt: skip


def json_type(value: object) -> str:
    """JSON's own name of a parsed value's type."""
    return _TYPE_NAMES[type(value)]


@dataclass(slots=True)
class Parsed:
    """One JSON value. `end` is the position behind it; `n_non_finite` counts NaN, infinities and numbers too large."""

    value: Any
    end: int
    n_non_finite: int
    fault: RowFault | None


class StrictDecoder:
    """Not to be shared between threads: the hooks note what they see on the decoder."""

    def __init__(self) -> None:
        self._repeated: str | None = None
        self._n_non_finite = 0
        self._json = json.JSONDecoder(
            object_pairs_hook=self._object, parse_constant=self._constant, parse_float=self._float
        )

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs) and self._repeated is None:
            self._repeated = _first_repeated(pairs)
        return value

    def _constant(self, name: str) -> float:
        self._n_non_finite += 1
        return float(name)

    def _float(self, text: str) -> float:
        value = float(text)
        if math.isinf(value):
            self._n_non_finite += 1
        return value

    def parse_at(self, text: str, start: int = 0) -> Parsed:
        """Read the value that begins at `start`. Raises RowFault when its end cannot be found."""
        self._repeated, self._n_non_finite = None, 0
        try:
            value, end = self._json.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise _syntax_fault(text, error) from None
        except RecursionError:
            raise _too_deep() from None
        except ValueError:  # int() refuses more than 4,300 digits: it takes quadratic time
            raise RowFault(
                "number_too_long", "a whole number has more than 4,300 digits; send it as a string"
            ) from None
        return Parsed(value, end, self._n_non_finite, self._fault(text, start, value, end))

    def _fault(self, text: str, start: int, value: object, end: int) -> RowFault | None:
        if self._repeated is not None:
            return RowFault("duplicate_key", f'the key "{quoted(self._repeated)}" stands twice in one object; keep one')
        if text.count("{", start, end) + text.count("[", start, end) > MAX_DEPTH and _depth(value) > MAX_DEPTH:
            return _too_deep()
        if _SURROGATE_ESCAPE.search(text, start, end):
            return _surrogate_fault(value)
        return None

    def parse(self, text: str) -> Parsed:
        """Read `text`, which is one value and nothing else (white space around it was stripped)."""
        parsed = self.parse_at(text)
        rest = text[parsed.end :].strip(" \t\r\n")
        if rest:
            raise _rest_fault(rest, parsed.end)
        return parsed


def parse_inner(text: str) -> Any:
    """JSON kept inside a string, such as a tool call's arguments: as strict, and NaN is refused. Raises RowFault."""
    parsed = StrictDecoder().parse(text.strip(" \t\r\n"))
    if parsed.fault is not None:
        raise parsed.fault
    if parsed.n_non_finite:
        raise RowFault("not_finite", "NaN, Infinity and numbers beyond 1.8e308 are not JSON")
    return parsed.value


# Steps from the row down to a value, innermost first: ((None, "messages"), 2). Spelt out only when it is needed,
# since a long key above many values would otherwise be copied for each of them.
Path = tuple[Any, str | int]


def walk(value: object) -> Iterator[tuple[Path | None, object]]:
    """Every value inside `value` with its path, keys included as strings; no recursion."""
    stack: list[tuple[Path | None, object]] = [(None, value)]
    while stack:
        path, item = stack.pop()
        yield path, item
        if isinstance(item, dict):
            for key, inner in reversed(item.items()):
                stack.append(((path, key), inner))
                stack.append(((path, key), key))
        elif isinstance(item, list):
            stack.extend(((path, index), item[index]) for index in range(len(item) - 1, -1, -1))


def spell(path: Path | None) -> str | None:
    """A path as people write it: messages[2].content."""
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else f".{quoted(step)}")
    return "".join(reversed(steps)).removeprefix(".") or None


def null_non_finite(value: Any) -> Any:
    """A copy of `value` with NaN and infinities as null. The depth was checked before, so recursion is safe."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: null_non_finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [null_non_finite(inner) for inner in value]
    return value


def _first_repeated(pairs: list[tuple[str, Any]]) -> str | None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    return None


def _depth(value: object) -> int:
    """How deep arrays and objects are nested in `value`; stops counting a little over the limit."""
    level, depth = [value], 0
    while level and depth <= MAX_DEPTH:
        level = [inner for item in level for inner in _children(item)]
        depth += 1
    return depth


def _children(item: object) -> list[object]:
    """The containers directly inside a container."""
    inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    return [child for child in inner if isinstance(child, dict | list)]


def _too_deep() -> RowFault:
    return RowFault("too_deep", f"arrays and objects are nested more than {MAX_DEPTH} deep")


def _surrogate_fault(value: object) -> RowFault | None:
    for path, item in walk(value):
        if isinstance(item, str):
            try:
                item.encode("utf-8")
            except UnicodeEncodeError as error:
                half = f"\\u{ord(item[error.start]):04x}"
                message = f"{half} is one half of a surrogate pair (a broken emoji) and no character; mend or remove it"
                return RowFault("lone_surrogate", message, field=spell(path))
    return None


def _syntax_fault(text: str, error: json.JSONDecodeError) -> RowFault:
    before, after = text[: error.pos].rstrip(), text[error.pos :].lstrip()
    if after[:1] in ("}", "]") and before.endswith(","):
        return RowFault("trailing_comma", f"a comma stands before the closing {after[0]}", position=error.pos)
    if before.endswith(",") and "trailing comma" in error.msg:
        return RowFault("trailing_comma", "a comma stands before a closing bracket", position=error.pos)
    if not after or error.msg.startswith("Unterminated string"):
        message = "the text ends inside a JSON value; a row must be whole, and on one line in JSONL"
        return RowFault("truncated", message, position=error.pos)
    return RowFault(
        "not_json",
        f'not valid JSON: {error.msg} at column {error.colno}, near "{quoted(after, 30)}"{_advice(before, after)}',
        position=error.pos,
    )


def _advice(before: str, after: str) -> str:
    if before.endswith('"') and after[:1] not in (":", ",", "}", "]"):
        return '; a quote inside a string is written \\"'
    if after.startswith("'"):
        return "; JSON needs double quotes"
    if after[:1] < " ":
        return "; a line break or tab inside a string is written \\n or \\t"
    if after.startswith(("True", "False", "None")):
        return "; JSON writes true, false and null"
    return ""


def _rest_fault(rest: str, position: int) -> RowFault:
    if rest == ",":
        return RowFault(
            "trailing_comma", "a comma follows the row; JSONL has one object a line, no commas", None, position
        )
    if rest.startswith("{"):
        return RowFault("several_rows", "more than one object stands on this line; put each on its own", None, position)
    return RowFault("trailing_data", f'more text follows the JSON value: "{quoted(rest, 30)}"', None, position)
