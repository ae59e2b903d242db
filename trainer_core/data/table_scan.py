"""From a table's stream of UTF-8 bytes to rows with their place: each record becomes an object of texts.

Pure: standard library only. Strict: a record that does not fit is at fault, never mended. Holds one record at a time.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator

from trainer_core.data.decode import Parsed
from trainer_core.data.problems import RowFault, quoted
from trainer_core.data.scan import Found, Tally, lines_of, not_utf8, row_too_long
from trainer_core.data.sources import UTF8_BOM, Content
from trainer_core.data.tables import DELIMITERS, Table

MAX_QUOTED_NAMES = 8


def scan_table(content: Content, table: Table, max_row_bytes: int, tally: Tally) -> Iterator[Found]:
    """Every row below the header, in order. Where the header is at fault, only the rows at fault behind it."""
    # The limit is the process's own, counts characters, and is below that on a row; never lowered, since it is shared.
    csv.field_size_limit(max(csv.field_size_limit(), max_row_bytes))
    lines = _Lines(content, max_row_bytes, tally)
    reader = csv.reader(lines, delimiter=table.delimiter, strict=True)
    content.notes.append(f"{DELIMITERS[table.delimiter]}-separated table: every cell is kept as text")
    is_separator_due = table.has_separator_line
    header: _Header | None = None
    for record in _records(reader, lines):
        if record.fault is None and not any(cell.strip() for cell in record.cells):
            tally.n_blank_lines += 1
        elif is_separator_due:
            is_separator_due = False
        elif header is None:
            if record.fault is not None:  # without the names nothing below can be judged
                yield Found(record.line, fault=record.fault, byte_offset=record.offset)
                return
            header = _Header(record.cells, content.notes)
            fault = header.fault(table)
            if fault is not None:
                yield Found(record.line, fault=fault, byte_offset=record.offset)
                header.is_usable = False
        else:
            found = _row(record, header)
            if found.fault is not None or header.is_usable:
                yield found
    if header is not None and header.is_usable:
        header.note_unnamed()


class _Record:
    """One record with the line and byte it starts at."""

    def __init__(self, cells: list[str], line: int, offset: int | None, fault: RowFault | None) -> None:
        self.cells = cells
        self.line = line
        self.offset = offset
        self.fault = fault


def _records(reader: Iterator[list[str]], lines: _Lines) -> Iterator[_Record]:
    while True:
        lines.begin()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            fault = _csv_fault(str(error), lines)
            yield _Record([], lines.start_line, lines.start_offset, lines.fault or fault)
        else:
            line = lines.start_line if lines.fault is None else lines.fault_line
            offset = lines.start_offset if lines.fault is None else lines.fault_offset
            yield _Record(cells, line, offset, lines.fault)


class _Lines:
    """Physical lines as text for the csv module; knows where a record began and what is wrong in its bytes."""

    def __init__(self, content: Content, max_row_bytes: int, tally: Tally) -> None:
        self._lines = lines_of(content.chunks, max_row_bytes)
        self._is_utf8 = content.is_utf8
        self._max = max_row_bytes
        self._tally = tally
        self._offset = content.start
        self._n_bytes = 0
        self.line = 0
        self.begin()

    def begin(self) -> None:
        """A new record starts with the next line."""
        self._n_bytes = 0
        self.start_line = self.line + 1
        self.start_offset = self._offset if self._is_utf8 else None
        self.fault: RowFault | None = None
        self.fault_line = 0
        self.fault_offset: int | None = None

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        data = next(self._lines)
        start, self._offset = self._offset, self._offset + len(data) + 1
        self.line += 1
        if self._n_bytes == 0 and data.startswith(UTF8_BOM):  # files with a mark, put one after another
            self._tally.n_inner_boms += 1
            start, data = start + len(UTF8_BOM), data[len(UTF8_BOM) :]
        self._n_bytes += len(data) + 1
        if self._n_bytes > self._max + 1:
            raise row_too_long(self.start_line, self._max)
        zero = data.find(b"\0")
        if zero >= 0:
            self._note(RowFault("zero_byte", "a zero byte stands in the text; remove it"), start + zero)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            self._note(not_utf8(data[error.start]), start + error.start)
            text = data.decode("utf-8", "replace")  # only to find where the record ends: it is at fault
        return f"{text}\n"

    def _note(self, fault: RowFault, offset: int) -> None:
        if self.fault is None:
            self.fault, self.fault_line = fault, self.line
            self.fault_offset = offset if self._is_utf8 else None


def _csv_fault(message: str, lines: _Lines) -> RowFault:
    where = "" if lines.line <= lines.start_line else f" (it goes on to line {lines.line})"
    if "unexpected end of data" in message:
        return RowFault("truncated", f"a quoted cell of the record that starts here is never closed{where}")
    if "expected after" in message:
        return RowFault(
            "bad_quotes",
            f"text follows the closing quote of a cell in the record that starts here{where}; "
            'a quote inside a quoted cell is written twice ("") and not \\"',
        )
    if "new-line" in message:
        return RowFault(
            "bad_line_break", "a carriage return stands alone in a cell without quotes; end lines with LF or CRLF"
        )
    return RowFault("bad_quotes", f"the record that starts here cannot be read{where}: {message}")


def _row(record: _Record, header: _Header) -> Found:
    if record.fault is not None:
        return Found(record.line, fault=record.fault, byte_offset=record.offset)
    if len(record.cells) != len(header.names):
        n, expected = len(record.cells), len(header.names)
        advice = "a cell that holds the delimiter, a quote or a line break stands in double quotes"
        fault = RowFault("ragged_row", f"found {n} field{'s' * (n != 1)}, expected {expected}; {advice}")
        return Found(record.line, fault=fault, byte_offset=record.offset)
    row = header.row(record.cells)
    text = json.dumps(row, ensure_ascii=False)
    return Found(record.line, text, Parsed(row, len(text), 0, None))


class _Header:
    """The columns' names. A column without one is called by its number, and only where it holds something."""

    def __init__(self, cells: list[str], notes: list[str]) -> None:
        self.is_usable = True
        self._cells = cells
        self._notes = notes
        self.names = [cell.strip() or f"column_{number}" for number, cell in enumerate(cells, start=1)]
        self._n_filled = {number: 0 for number, cell in enumerate(cells) if not cell.strip()}

    def fault(self, table: Table) -> RowFault | None:
        if table.header_fault is not None:
            return RowFault(
                "no_header",
                f"the first row must name the columns, and seems to be data: {table.header_fault}; "
                f"add a header line, such as text{table.delimiter if table.delimiter != chr(9) else ' (tab) '}label",
            )
        repeated = next((name for index, name in enumerate(self.names) if name in self.names[:index]), None)
        if repeated is not None:
            return RowFault("duplicate_column", f'two columns are called "{quoted(repeated)}"; rename one')
        trimmed = [cell for cell in self._cells if cell.strip() and cell != cell.strip()]
        if trimmed:
            names = ", ".join(f'"{quoted(cell, 30)}"' for cell in trimmed[:MAX_QUOTED_NAMES])
            self._notes.append(f"white space around names of columns removed: {names}")
        if not table.has_known_header:
            names = ", ".join(quoted(cell.strip(), 30) for cell in self._cells if cell.strip())
            self._notes.append(f"the first row was taken as the names of the columns: {quoted(names, 200)}")
        return None

    def row(self, cells: list[str]) -> dict[str, str]:
        row: dict[str, str] = {}
        for number, (name, cell) in enumerate(zip(self.names, cells, strict=True)):
            if number in self._n_filled:
                if not cell.strip():
                    continue
                self._n_filled[number] += 1
            row[name] = cell
        return row

    def note_unnamed(self) -> None:
        n_empty = sum(not n for n in self._n_filled.values())
        if n_empty:
            self._notes.append(f"{n_empty} columns without a name and without text left out")
        filled = [f"column_{number + 1} ({n} rows)" for number, n in self._n_filled.items() if n]
        if filled:
            names = ", ".join(filled[:MAX_QUOTED_NAMES])
            advice = "a quote or delimiter in the text may have cut it there"
            self._notes.append(f"columns without a name hold text and are called by their number: {names}; {advice}")
