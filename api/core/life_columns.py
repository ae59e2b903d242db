"""Columns of a job's life cycle: limits, the wait before the next try, faults counted, nodes it keeps away from.

`Job` in `tables.py` takes them in; what they mean is in `policy.py`, `waiting.py` and `outcomes.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Mapped, mapped_column


class LifeColumns:
    """Taken in by `Job`."""

    time_limit_s: Mapped[int | None] = mapped_column(doc="Seconds its attempts may run, all together; null: no limit.")
    not_before: Mapped[datetime | None] = mapped_column(doc="Queued again and backing off: not placed before then.")
    excluded: Mapped[list[Any]] = mapped_column(
        default=list, doc="Where it failed twice: [{node_id, device}]; device null is the whole node."
    )
    faults: Mapped[dict[str, Any]] = mapped_column(
        default=dict, doc="Whose fault (service, node, user) -> attempts it ended."
    )
