"""Waiting for what is away: which errors mean that the database does not answer, and when to try again."""

from __future__ import annotations

from sqlalchemy.exc import InterfaceError, OperationalError, TimeoutError

# The database is away or busy; the work stays where it is and is tried again. Everything else is a fault of ours.
AWAY = (OperationalError, InterfaceError, TimeoutError)


class Backoff:
    """Doubling pauses between tries, back to the first after a success."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._pause_s = first_s

    def failed(self) -> float:
        """The pause before the next try."""
        pause_s = self._pause_s
        self._pause_s = min(self._longest_s, pause_s * 2)
        return pause_s

    def worked(self) -> None:
        self._pause_s = self._first_s


class Pace:
    """Something done every so often, and less often while it fails."""

    def __init__(self, every_s: float, longest_s: float = 10.0) -> None:
        self._every_s = every_s
        self._backoff = Backoff(every_s, longest_s)
        self._due_at = float("-inf")

    def is_due(self, now_s: float) -> bool:
        return now_s >= self._due_at

    def hurry(self) -> None:
        """It is due now."""
        self._due_at = float("-inf")

    def worked(self, now_s: float) -> None:
        self._backoff.worked()
        self._due_at = now_s + self._every_s

    def failed(self, now_s: float) -> float:
        """Put off; returns by how long."""
        pause_s = self._backoff.failed()
        self._due_at = now_s + pause_s
        return pause_s
