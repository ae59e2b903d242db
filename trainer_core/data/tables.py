"""Telling a table (CSV, TSV, semicolons) from other text by its first lines, and its header from its data.

Pure: standard library only. Only the first bytes are looked at; `table_scan.py` reads the rows.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from trainer_core.data.fields import FIELDS, has_fields
from trainer_core.data.problems import UploadRefused, quoted

DELIMITERS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "pipe"}
_GUESSED = ("\t", ",", ";")
_SNIFFED_BYTES = 64 * 1024
_SNIFFED_RECORDS = 6
# Excel writes this line so that it itself finds the delimiter.
SEPARATOR_LINE = re.compile(r'"?sep=(.|\\t)"?', re.IGNORECASE)
_COLUMN_NAME = re.compile(r"[^\W\d][\w .:/()#%&+-]{0,63}")
_MAX_NAME_WORDS = 5
_JSON_WORDS = ("true", "false", "null", "NaN", "Infinity")


@dataclass(frozen=True)
class Table:
    """How a table is to be read. `header_fault` says why its first row seems to be data."""

    delimiter: str
    has_separator_line: bool = False
    header_fault: str | None = None
    has_known_header: bool = False


def find_table(head: bytes, *, is_whole: bool) -> Table | None:
    """The table that `head` begins, or None if it begins something else. Raises UploadRefused for an odd sep= line."""
    lines = _lines(head, is_whole)
    filled = [line.strip() for line in lines if line.strip()][:5]
    if not filled or _has_json(filled[:1]):
        return None
    first = next(line for line in lines if line.strip())
    separator = SEPARATOR_LINE.fullmatch(first.strip(" \r"))
    if separator is not None:
        mark = "\t" if separator[1] == "\\t" else separator[1]
        if mark not in DELIMITERS:
            known = ", ".join(DELIMITERS.values())
            raise UploadRefused("bad_separator", f'"{quoted(mark)}" is no delimiter; known are {known}', "Use a comma.")
        below = lines[next(i for i, line in enumerate(lines) if line.strip()) + 1 :]
        return _table(mark, _records(below, mark, is_whole), has_separator_line=True)
    found = [(mark, _records(lines, mark, is_whole)) for mark in _GUESSED]
    choices = (_is_consistent, _has_known_header, _is_ragged_table)
    chosen = next(((mark, records) for is_one in choices for mark, records in found if is_one(records)), None)
    if chosen is None:
        return None
    # A cell may end with a brace; under one name, or names that are no format's, it rather is JSON with a fault above.
    is_sure = len(chosen[1][0]) > 1 and _has_known_header(chosen[1])
    if not is_sure and _has_json(filled):
        return None
    return _table(*chosen)


def refuse_text(head: bytes, *, is_whole: bool) -> None:
    """Raise UploadRefused if the first lines are plain text; what may be meant as JSON is told line by line."""
    filled = [line.strip() for line in _lines(head, is_whole) if line.strip()][:5]
    if len(filled) < 2 or _has_json(filled) or not filled[0][0].isalpha() or filled[0].startswith(_JSON_WORDS):
        return
    raise UploadRefused(
        "text_sent",
        "the file is plain text, neither JSON nor a table",
        'Send JSONL, one object a line: {"text": "..."} for text to learn, {"prompt": "...", "completion": "..."} for '
        "lines of two files that belong together. A table needs a header line that names the columns.",
    )


def _lines(head: bytes, is_whole: bool) -> list[str]:
    text = head[:_SNIFFED_BYTES].decode("utf-8", "replace").split("\n")
    return text if is_whole and len(head) <= _SNIFFED_BYTES else text[:-1]


def _has_json(filled: Sequence[str]) -> bool:
    return any(line.startswith(("{", "[")) or line.endswith(("}", "},")) for line in filled)


def _records(lines: Iterable[str], mark: str, is_whole: bool) -> list[list[str]]:
    """The first few records that are not empty. The last one found may be cut, and is left out then."""
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=mark)
    records: list[list[str]] = []
    try:
        records.extend(islice((record for record in reader if any(record)), _SNIFFED_RECORDS))
    except csv.Error:  # a cell over the module's own limit, or a lone carriage return: told with its line later
        return records
    may_be_cut = not is_whole and 1 < len(records) < _SNIFFED_RECORDS
    return records[:-1] if may_be_cut else records


def _is_consistent(records: list[list[str]]) -> bool:
    return len(records) > 1 and len(records[0]) > 1 and len({len(record) for record in records}) == 1


def _has_known_header(records: list[list[str]]) -> bool:
    """A table of one column is known by nothing else."""
    names = {cell.strip() for cell in records[0]} if records else set()
    return any(has_fields(format, names) for format in FIELDS)


def _is_ragged_table(records: list[list[str]]) -> bool:
    has_more = any(len(record) > 1 for record in records[1:])
    return has_more and len(records[0]) > 1 and _header_fault(records) is None


def _table(mark: str, records: list[list[str]], *, has_separator_line: bool = False) -> Table:
    is_known = _has_known_header(records)
    fault = None if is_known or not records else _header_fault(records)
    return Table(mark, has_separator_line, fault, is_known)


def _header_fault(records: list[list[str]]) -> str | None:
    """Why the first record cannot be the names of the columns."""
    names = [cell.strip() for cell in records[0]]
    for name in filter(None, names):
        is_name = _COLUMN_NAME.fullmatch(name) and len(name.split()) <= _MAX_NAME_WORDS and not name.endswith(".")
        if not is_name:
            return f'"{quoted(name, 30)}" is no name of a column'
    for record in records[1:]:
        for name, cell in zip(names, record, strict=False):
            if name and cell.strip() == name:
                return f'"{quoted(name, 30)}" stands again in the same column below'
    return None
