"""Reading a normalised dataset file back: one row a line, by number.

Pure: standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from trainer_core.data.decode import StrictDecoder
from trainer_core.data.problems import Problems, RowFault


@dataclass(frozen=True, slots=True)
class Row:
    """`line` counts from 1 in the normalised file."""

    line: int
    value: dict[str, Any]


def read_rows(path: Path, start: int = 0, limit: int | None = None) -> Iterator[Row]:
    """Rows number `start` (from 0) and on, `limit` at most. Raises UploadRefused if the file is not normalised."""
    decoder = StrictDecoder()
    stop = None if limit is None else start + limit
    with path.open("rb") as file:
        for index, line in islice(enumerate(file), start, stop):
            yield Row(index + 1, _row(decoder, line, index + 1))


def _row(decoder: StrictDecoder, line: bytes, number: int) -> dict[str, Any]:
    try:
        parsed = decoder.parse(line.decode("utf-8"))
    except UnicodeDecodeError:
        _refuse(RowFault("not_utf8", "the stored row is not UTF-8"), number)
    except RowFault as fault:
        _refuse(fault, number)
    if parsed.fault is not None:
        _refuse(parsed.fault, number)
    if not isinstance(parsed.value, dict):
        _refuse(RowFault("not_an_object", "the stored row is not a JSON object"), number)
    value: dict[str, Any] = parsed.value
    return value


def _refuse(fault: RowFault, line: int) -> NoReturn:
    problems = Problems()
    problems.add(fault, line)
    problems.refuse()
