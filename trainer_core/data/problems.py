"""What can be wrong with a dataset, and how it is told: one row's fault, its place in the file, the refusal of a file.

Pure: pydantic and the standard library only. Messages quote at most a few words of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from trainer_core.contract import Frozen

MAX_LISTED = 20
MAX_QUOTED = 60
MAX_LINES_NAMED = 5


def quoted(text: str, limit: int = MAX_QUOTED) -> str:
    """A short piece of a row that is safe to print: cut, and with halves of surrogate pairs escaped."""
    short = text if len(text) <= limit else text[: limit - 1] + "…"
    return printable(short)


def printable(text: str) -> str:
    """`text` as UTF-8 and PostgreSQL can hold it: halves of surrogate pairs and zero characters become escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\u0000")


class RowFault(Exception):
    """One row cannot be used. `position` is the character in the row's text where a syntax fault lies."""

    def __init__(self, code: str, message: str, field: str | None = None, position: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = None if field is None else quoted(field, 200)
        self.position = position


class RowProblem(Frozen):
    """A row's fault with its place in the file."""

    code: str
    message: str
    line: int
    field: str | None = None
    byte_offset: int | None = None


class UploadRefused(Exception):
    """The file as a whole is refused. `problems` holds the first 20 rows at fault, `n_problems` counts them all."""

    def __init__(
        self,
        code: str,
        message: str,
        hint: str | None = None,
        problems: Sequence[RowProblem] = (),
        n_problems: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.problems = list(problems)
        self.n_problems = len(self.problems) if n_problems is None else n_problems


class FormatError(Exception):
    """A job's column mapping does not fit the dataset. `field` is the mapping's key at fault."""

    def __init__(self, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field


class Problems:
    """Collects rows at fault: the first 20 in full, the rest by number, so memory stays flat."""

    def __init__(self) -> None:
        self.listed: list[RowProblem] = []
        self.n = 0

    def add(self, fault: RowFault, line: int, byte_offset: int | None = None) -> None:
        self.n += 1
        if len(self.listed) < MAX_LISTED:
            self.listed.append(
                RowProblem(
                    code=fault.code, message=fault.message, line=line, field=fault.field, byte_offset=byte_offset
                )
            )

    def refuse(self) -> NoReturn:
        """Raise the refusal; its code and message are those of the first row at fault."""
        self.listed.sort(key=lambda problem: problem.line)
        first = self.listed[0]
        where = f"line {first.line}" if first.field is None else f"line {first.line}, {first.field}"
        lines = ", ".join(str(problem.line) for problem in self.listed[:MAX_LINES_NAMED])
        rest = f" and more; the first {len(self.listed)} are listed" if self.n > MAX_LINES_NAMED else ""
        more = "" if self.n == 1 else f" ({self.n} rows cannot be used: lines {lines}{rest})"
        raise UploadRefused(
            first.code, f"{where}: {first.message}{more}", "Mend the lines named and send the file again.",
            self.listed, self.n,
        )  # fmt: skip
