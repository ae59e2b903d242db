"""Columns by name, and by dotted path into nested objects: `translation.en`.

Pure: standard library only. A column that has the whole path as its name goes before the path.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final


class Missing:
    """The one value that says that a row lacks a column; null is a value."""


MISSING: Final = Missing()


def value_at(row: Mapping[str, Any], path: str) -> Any:
    """The row's value at `path`, or MISSING. Each dot may also be a part of a name."""
    if path in row:
        return row[path]
    at = path.find(".")
    while at >= 0:
        inner = row.get(path[:at])
        if isinstance(inner, dict):
            value = value_at(inner, path[at + 1 :])
            if value is not MISSING:
                return value
        at = path.find(".", at + 1)
    return MISSING


def types_at(columns: Mapping[str, Collection[str]], path: str) -> Collection[str] | None:
    """The JSON types seen in a column; none are known inside objects; None where there can be no such column."""
    if path in columns:
        return columns[path]
    heads = (path[:at] for at, mark in enumerate(path) if mark == ".")
    return () if any("object" in columns.get(head, ()) for head in heads) else None
