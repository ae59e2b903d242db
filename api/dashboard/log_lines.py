"""Pages of a job's log, forwards and backwards, by text, rank and level. The chunks come from the newest on, and one
request reads a bounded number of them, so that a search through tens of MB answers piece by piece.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ScalarResult, Select, func, select
from sqlalchemy.orm import Session

from api.core.tables import LogChunk

# Written so that JavaScript reads them too: the page tells the level of lines that come live.
LEVELS = {
    "error": r"\b(ERROR|CRITICAL|FATAL)\b|^Traceback \(most recent call last\)|\b\w*(Error|Exception)\b: ",
    "warning": r"\bWARN(ING)?\b|\b\w*Warning: ",
}
_PATTERNS = {level: re.compile(pattern) for level, pattern in LEVELS.items()}
AT_LEAST = {"error": {"error"}, "warning": {"error", "warning"}}
# What a text of the level has in it, whatever else: found in a whole chunk a hundred times sooner than line by line.
_WORDS = {
    "error": ("ERROR", "CRITICAL", "FATAL", "Traceback", "Error: ", "Exception: "),
    "warning": ("WARN", "Warning: "),
}
MAX_CHUNKS = 400


@dataclass(frozen=True)
class Wanted:
    """Which lines: all that is given must hold; `level` means that one or worse."""

    search: str = ""
    rank: int | None = None
    level: str = ""


def level_of(text: str) -> str:
    return next((level for level, pattern in _PATTERNS.items() if pattern.search(text)), "info")


def before(session: Session, job_id: str, n: int, limit: int, wanted: Wanted) -> tuple[list[dict[str, Any]], int]:
    """At most `limit` lines under number `n`, oldest first, and the number under which to go on; 0: none is left."""
    query = select(LogChunk).where(LogChunk.job_id == job_id, LogChunk.first_n < n).order_by(LogChunk.last_n.desc())
    found: list[dict[str, Any]] = []
    with closing(_chunks(session, query, wanted)) as chunks:
        for n_read, chunk in enumerate(chunks, 1):
            lines = [line for line in _lines(chunk, wanted) if line["n"] < n]
            for line in reversed(lines):
                found.append(line)
                if len(found) == limit:
                    return found[::-1], line["n"]
            if n_read == MAX_CHUNKS:
                return found[::-1], chunk.first_n
    return found[::-1], 0


def after(session: Session, job_id: str, n: int, limit: int, wanted: Wanted) -> tuple[list[dict[str, Any]], int]:
    """At most `limit` lines over number `n`, oldest first, and the number after which to go on; -1: none is left."""
    query = select(LogChunk).where(LogChunk.job_id == job_id, LogChunk.last_n > n).order_by(LogChunk.last_n)
    found: list[dict[str, Any]] = []
    with closing(_chunks(session, query, wanted)) as chunks:
        for n_read, chunk in enumerate(chunks, 1):
            for line in _lines(chunk, wanted):
                if line["n"] > n:
                    found.append(line)
                if len(found) == limit:
                    return found, line["n"]
            if n_read == MAX_CHUNKS:
                return found, chunk.last_n
    return found, -1


def _chunks(session: Session, query: Select[Any], wanted: Wanted) -> Generator[LogChunk, None, None]:
    needle = wanted.search.lower()
    if needle.isascii() and needle:  # chunks without the text stay in the database
        written = json.dumps(needle, ensure_ascii=False)[1:-1]
        query = query.where(func.lower(LogChunk.body).contains(written, autoescape=True))
    # Closed even when left early: on PostgreSQL these rows come through a cursor that the server keeps.
    found: ScalarResult[LogChunk] = session.scalars(query.execution_options(yield_per=10))
    with closing(found) as chunks:
        yield from chunks


def _lines(chunk: LogChunk, wanted: Wanted) -> Iterator[dict[str, Any]]:
    needle = wanted.search.lower()
    levels = AT_LEAST.get(wanted.level)
    words = [word for level in levels or () for word in _WORDS[level]]
    if words and not _has_any(chunk.body, words):
        return
    for body in chunk.body.split("\n"):
        if words and not _has_any(body, words):
            continue
        line = json.loads(body)
        if (needle and needle not in line["text"].lower()) or (wanted.rank is not None and line["rank"] != wanted.rank):
            continue
        level = level_of(line["text"])
        if levels is None or level in levels:
            yield {**line, "level": level}


def _has_any(text: str, words: list[str]) -> bool:
    return any(word in text for word in words)
