"""What a run would have written, for the tests of events, metrics and logs; and a reader of server-sent events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from api.core import events, logs, moves
from api.core.db import Database, now
from api.core.events import NewEvent
from api.core.logs import LogLine
from api.core.states import State
from api.core.tables import Job, MetricRow


class Sent(NamedTuple):
    """One server-sent event."""

    name: str
    id: str | None
    data: Any


def parse(lines: Iterable[str]) -> Iterator[Sent]:
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            if "data" in fields:
                yield Sent(fields.get("event", "message"), fields.get("id"), strict(fields["data"]))
            fields = {}


def strict(text: str) -> Any:
    """Strict JSON: a bare NaN or Infinity fails the test."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def say(database: Database, job_id: str, *messages: str) -> None:
    with database.session() as session:
        events.append(session, job_id, [NewEvent("note", message) for message in messages])


def measure(database: Database, job_id: str, *rows: dict[str, Any], kind: str = "train", attempt: int = 1) -> None:
    """Add a row of figures a step, as shipping does it: non-finite ones as strings."""
    with database.session() as session:
        job = session.get_one(Job, job_id, with_for_update=True)
        for values in rows:
            job.last_metric_n += 1
            n = job.last_metric_n
            row = MetricRow(
                job_id=job_id, n=n, at=now(), attempt=attempt, seq=n, kind=kind, step=n, epoch=0.5, values=values
            )
            session.add(row)


def log(database: Database, job_id: str, *texts: str, rank: int | None = 0) -> None:
    source = "launcher" if rank is None else f"rank{rank}"
    with database.session() as session:
        logs.append(session, job_id, 1, [LogLine(now(), source, rank, text) for text in texts])


def end(database: Database, job_id: str) -> None:
    with database.session() as session:
        assert moves.move(session, job_id, State.CANCELLED, NewEvent("cancelled", "Cancelled"))
