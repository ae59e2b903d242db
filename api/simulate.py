"""`python -m api simulate`: a trace against the plan and against plain first in, first out, side by side."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from api.core.planning.model import Policy
from api.core.planning.plan import plan
from api.core.planning.simulation import Replay, fifo, simulate
from api.core.planning.traces import read_nodes, read_trace

Row = tuple[str, Callable[[Replay], str]]


def replay(trace: Path, nodes: str, *, half_life_s: float, look_every_s: float, spans_nodes: bool) -> int:
    """Prints utilisation, waits and fairness of both. Raises Invalid for a trace or nodes that cannot be read."""
    jobs, machines = read_trace(trace), read_nodes(nodes)
    policy = Policy(spans_nodes=spans_nodes)
    ours, plain = (
        simulate(jobs, machines, policy, decide=decide, half_life_s=half_life_s, look_every_s=look_every_s)
        for decide in (plan, fifo)
    )
    print(f"{len(jobs)} jobs on {len(machines)} nodes with {ours.n_devices} devices\n")
    print(f"{'':<26}{'trainyard':>14}{'plain FIFO':>14}")
    for title, show in ROWS:
        print(f"{title:<26}{show(ours):>14}{show(plain):>14}")
    if ours.never:
        shown = ", ".join(ours.never[:5]) + (", ..." if len(ours.never) > 5 else "")
        print(f"\n{len(ours.never)} jobs fit no node and never start: {shown}")
    return 0


def percentile(ascending: list[float], part: float) -> float:
    """The smallest value that so large a part of the values does not exceed."""
    return ascending[min(len(ascending) - 1, int(part * len(ascending)))] if ascending else 0.0


def span(seconds: float) -> str:
    """`45 s`, `12.5 min`, `3.2 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


ROWS: tuple[Row, ...] = (
    ("utilisation", lambda found: f"{found.utilisation:.1%}"),
    ("wait, median", lambda found: span(statistics.median(found.waits_s() or [0.0]))),
    ("wait, 95th percentile", lambda found: span(percentile(found.waits_s(), 0.95))),
    ("wait, longest", lambda found: span(max(found.waits_s(), default=0.0))),
    ("until the last end", lambda found: span(max(found.end_s.values(), default=0.0))),
    ("fairness (Jain, 1 is even)", lambda found: f"{found.fairness():.3f}"),
    ("preemptions", lambda found: str(found.n_preemptions)),
)
