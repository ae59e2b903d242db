"""A lease has one holder, passes on when it is over, and remembers since when it has been held."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from api.core import leases
from api.core.db import Database
from tests.api.core.rows import after, together


def take(database: Database, holder: str, at_s: float) -> datetime | None:
    with database.session() as session:
        return leases.take(session, "lead", holder, 10, at=after(at_s))


def test_one_of_many_gets_it(database: Database) -> None:
    answers = together([partial(take, database, f"h{number}", 0) for number in range(8)])
    assert len([answer for answer in answers if answer]) == 1


def test_it_is_renewed_by_its_holder_alone(database: Database) -> None:
    assert take(database, "a", 0) == after(0)
    assert take(database, "b", 9) is None
    assert take(database, "a", 9) == after(0)
    assert take(database, "b", 18) is None


def test_it_passes_on_when_it_is_over(database: Database) -> None:
    take(database, "a", 0)
    assert take(database, "b", 11) == after(0)
    assert take(database, "a", 12) is None


def test_a_gap_starts_the_count_anew_for_anybody(database: Database) -> None:
    take(database, "a", 0)
    assert take(database, "a", 21) == after(21)
    assert take(database, "b", 42) == after(42)
