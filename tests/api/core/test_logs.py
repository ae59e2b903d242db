"""Log lines: chunks hide nothing, cursors and filters work on lines."""

from __future__ import annotations

import json

from sqlalchemy import select

from api.core import logs
from api.core.db import Database
from api.core.logs import LogLine
from api.core.tables import LogChunk
from tests.api.core.rows import T0, after, make_job


def write(database: Database, job_id: str, *lines: LogLine) -> None:
    with database.session() as session:
        logs.append(session, job_id, 1, lines)


def texts(database: Database, job_id: str, after_n: int = 0, limit: int = 1000, **options: object) -> list[str]:
    with database.reading() as session:
        return [item["text"] for item in logs.read(session, job_id, after_n, limit, **options)]  # type: ignore[arg-type]


def test_lines_come_back_as_they_were_written(database: Database) -> None:
    job_id = make_job(database)
    nasty = 'tab\t "quoted" back\\slash\u2028 line sep \U0001f600 and \n inside'
    write(database, job_id, LogLine(after(1.25), "rank1", 1, nasty), LogLine(T0, "launcher", None, ""))
    with database.reading() as session:
        first, second = logs.read(session, job_id, 0, 10)
    assert first == {"n": 1, "at": "2026-01-01T12:00:01.250000+00:00", "source": "rank1", "rank": 1, "text": nasty}
    assert (second["n"], second["source"], second["rank"], second["text"]) == (2, "launcher", None, "")


def test_pages_meet_whatever_the_chunks_are(database: Database) -> None:
    job_id = make_job(database)
    for start in range(0, 1300, 650):
        write(database, job_id, *(LogLine(T0, "rank0", 0, f"line {start + k}") for k in range(650)))
    write(database, job_id, LogLine(T0, "rank0", 0, "x" * 300_000))
    seen: list[str] = []
    while page := texts(database, job_id, len(seen), 97):
        seen += page
    assert seen[:-1] == [f"line {k}" for k in range(1300)]
    assert len(seen[-1]) == 300_000
    with database.reading() as session:
        chunks = session.execute(
            select(LogChunk.first_n, LogChunk.last_n, LogChunk.body).order_by(LogChunk.last_n)
        ).all()
    assert [(first, last) for first, last, _ in chunks] == [
        (1, 500), (501, 650), (651, 1150), (1151, 1300), (1301, 1301),
    ]  # fmt: skip
    assert all(len(body.split("\n")) == last - first + 1 for first, last, body in chunks)
    assert all(json.loads(body.split("\n")[0])["n"] == first for first, _, body in chunks)


def test_search_and_rank_choose_lines(database: Database) -> None:
    job_id = make_job(database)
    write(
        database,
        job_id,
        LogLine(T0, "rank0", 0, 'CUDA Error: "out of memory" 50%'),
        LogLine(T0, "rank1", 1, "all is well"),
        LogLine(T0, "rank1", 1, "ÜBER cuda error"),
    )
    assert len(texts(database, job_id, search="cuda error")) == 2
    assert texts(database, job_id, search='"OUT of memory" 50%') == ['CUDA Error: "out of memory" 50%']
    assert texts(database, job_id, search="über") == ["ÜBER cuda error"]
    assert texts(database, job_id, search="_ll") == []
    assert texts(database, job_id, search="cuda", rank=1) == ["ÜBER cuda error"]
    assert texts(database, job_id, after_n=1, search="cuda") == ["ÜBER cuda error"]


def test_the_tail_is_the_newest_lines_in_order(database: Database) -> None:
    job_id = make_job(database)
    write(database, job_id, *(LogLine(T0, "rank0", 0, str(k)) for k in range(700)))
    with database.reading() as session:
        assert [item["text"] for item in logs.tail(session, job_id, 3)] == ["697", "698", "699"]
        assert len(logs.tail(session, job_id, 5000)) == 700
        assert logs.tail(session, make_job(database), 5) == []
