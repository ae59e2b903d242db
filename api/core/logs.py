"""Log lines of a job, kept in chunks of JSON lines; `n` counts lines within the job without gaps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func, insert, select, update
from sqlalchemy.orm import Session

from api.core.clean import clean_text
from api.core.errors import NotFound
from api.core.tables import Job, LogChunk

MAX_CHUNK_LINES = 500
MAX_CHUNK_CHARS = 128 * 1024


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line as a process printed it. `source` is the file's stem (rank0, launcher); `rank` null: no rank's."""

    at: datetime
    source: str
    rank: int | None
    text: str


def append(session: Session, job_id: str, attempt: int, lines: Sequence[LogLine]) -> None:
    """Writes `lines` in their order. Raises NotFound where there is no such job."""
    if not lines:
        return
    last_n = session.scalar(
        update(Job)
        .where(Job.id == job_id)
        .values(last_log_n=Job.last_log_n + len(lines))
        .returning(Job.last_log_n)
        .execution_options(synchronize_session=False)
    )
    if last_n is None:
        raise NotFound(f"there is no job {job_id!r}")
    chunks = [
        {
            "job_id": job_id,
            "first_n": first_n,
            "last_n": first_n + len(bodies) - 1,
            "attempt": attempt,
            "body": "\n".join(bodies),
        }
        for first_n, bodies in _chunks(lines, last_n - len(lines) + 1)
    ]
    session.execute(insert(LogChunk.__table__), chunks)  # type: ignore[arg-type]  # the declared type is FromClause


def _chunks(lines: Sequence[LogLine], first_n: int) -> Iterator[tuple[int, list[str]]]:
    bodies: list[str] = []
    n_chars = 0
    for n, line in enumerate(lines, first_n):
        body = _encode(n, line)
        if bodies and (len(bodies) == MAX_CHUNK_LINES or n_chars + len(body) > MAX_CHUNK_CHARS):
            yield first_n, bodies
            first_n, bodies, n_chars = n, [], 0
        bodies.append(body)
        n_chars += len(body)
    yield first_n, bodies


def _encode(n: int, line: LogLine) -> str:
    at = line.at.astimezone(UTC).isoformat()
    item = {"n": n, "at": at, "source": line.source, "rank": line.rank, "text": clean_text(line.text)}
    return json.dumps(item, ensure_ascii=False, separators=(",", ":"))


def read(
    session: Session, job_id: str, after: int, limit: int, search: str | None = None, rank: int | None = None
) -> list[dict[str, Any]]:
    """At most `limit` lines {n, at, source, rank, text} with n > `after`, oldest first.

    `search` keeps lines that contain the text, in any case; `rank` those of one rank.
    """
    query = select(LogChunk.body).where(LogChunk.job_id == job_id, LogChunk.last_n > after).order_by(LogChunk.last_n)
    needle = search.lower() if search else None
    if needle is not None and needle.isascii():
        # Chunks without the text stay in the database. Lower case of other scripts is not the same in SQLite.
        query = query.where(func.lower(LogChunk.body).contains(_as_in_json(needle), autoescape=True))
    found: list[dict[str, Any]] = []
    # Closed even when left early: on PostgreSQL these rows come through a cursor that the server keeps.
    with closing(session.scalars(query.execution_options(yield_per=20))) as bodies:
        for body in bodies:
            lines = map(json.loads, body.split("\n"))
            found.extend(line for line in lines if line["n"] > after and _is_wanted(line, needle, rank))
            if len(found) >= limit:
                break
    return found[:limit]


def _is_wanted(line: dict[str, Any], needle: str | None, rank: int | None) -> bool:
    if rank is not None and line["rank"] != rank:
        return False
    return needle is None or needle in line["text"].lower()


def _as_in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def tail(session: Session, job_id: str, n: int) -> list[dict[str, Any]]:
    """The newest `n` lines, oldest first."""
    last_n = session.scalar(select(Job.last_log_n).where(Job.id == job_id)) or 0
    return read(session, job_id, after=max(0, last_n - n), limit=n)
