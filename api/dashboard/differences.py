"""Configurations as flat tables, and where several of them differ. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Row = tuple[str, list[str | None], bool]


def flattened(value: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """Dotted path -> the value as JSON would write it, texts without quotes."""
    found: dict[str, str] = {}
    for key, item in value.items():
        here = f"{path}.{key}" if path else key
        if isinstance(item, Mapping) and item:
            found |= flattened(item, here)
        else:
            found[here] = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
    return found


def compared(tables: Sequence[Mapping[str, str]]) -> list[Row]:
    """(path, each one's value or None, whether they differ) for every path of any, in order of first appearance."""
    paths = dict.fromkeys(path for table in tables for path in table)
    rows = [(path, [table.get(path) for table in tables]) for path in paths]
    return [(path, values, len(set(values)) > 1) for path, values in rows]
