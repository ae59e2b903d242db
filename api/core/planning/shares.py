"""Fair share between projects: who has used how much lately, and in which order the waiting jobs come. Pure.

Higher priority first. Within a priority the project that has used least for its weight comes next, and each job it gets
to put in line is charged to it, so projects take turns. Within a project: who waits longer.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from api.core.planning.model import UNKNOWN_RUN_S, Account, Policy, Running, Usage, Waiting


class Span(NamedTuple):
    """Devices held for a while: from `began_s` to `ended_s` seconds ago."""

    project: str
    user: str
    n_devices: int
    began_s: float
    ended_s: float = 0.0


def usage_of(spans: Iterable[Span], *, half_life_s: float, window_s: float) -> Usage:
    """Device-seconds of the spans. A second that lies h half-lives back counts 2 ** -h in the shares."""
    rate = math.log(2) / half_life_s
    shares: dict[str, float] = {}
    window: dict[Account, float] = {}
    for span in spans:
        # The integral of exp(-rate * age) over the ages of the span.
        decayed = (math.exp(-rate * span.ended_s) - math.exp(-rate * span.began_s)) / rate
        shares[span.project] = shares.get(span.project, 0.0) + span.n_devices * max(0.0, decayed)
        inside_s = min(span.began_s, window_s) - span.ended_s
        if inside_s > 0:
            accounts: tuple[Account, Account] = (("project", span.project), ("user", span.user))
            for account in accounts:
                window[account] = window.get(account, 0.0) + span.n_devices * inside_s
    return Usage(shares, window)


def merged(first: Usage, second: Usage) -> Usage:
    """The sum of both."""
    shares, window = dict(first.shares), dict(first.window)
    for project, used in second.shares.items():
        shares[project] = shares.get(project, 0.0) + used
    for account, used in second.window.items():
        window[account] = window.get(account, 0.0) + used
    return Usage(shares, window)


def committed(shares: Mapping[str, float], running: Iterable[Running], policy: Policy) -> dict[str, float]:
    """What was used plus what the running jobs will still use: a job counts the same before and after its start."""
    total = dict(shares)
    for run in running:
        left_s = run.left_s if run.left_s is not None else (policy.typical_run_s or UNKNOWN_RUN_S)
        total[run.project] = total.get(run.project, 0.0) + run.n_devices * left_s
    return total


def in_order(waiting: Iterable[Waiting], shares: Mapping[str, float], policy: Policy) -> list[Waiting]:
    """Every waiting job, whose turn it is first. `shares` are the device-seconds each project has used."""
    levels: dict[int, dict[str, list[Waiting]]] = {}
    for job in sorted(waiting, key=_age):
        levels.setdefault(job.priority, {}).setdefault(job.project, []).append(job)
    charged = dict(shares)
    ordered: list[Waiting] = []
    for priority in sorted(levels, reverse=True):
        projects = levels[priority]
        if len(projects) == 1:
            (jobs,) = projects.values()
            for job in jobs:
                charged[job.project] = charged.get(job.project, 0.0) + _charge(job, policy)
            ordered += jobs
        else:
            _take_turns(projects, charged, policy, ordered)
    return ordered


def _age(job: Waiting) -> tuple[object, str]:
    return job.queued_at, job.job_id


def _take_turns(
    projects: Mapping[str, list[Waiting]], charged: dict[str, float], policy: Policy, ordered: list[Waiting]
) -> None:
    """Appends to `ordered` and charges as it goes."""
    turns = [
        (charged.get(name, 0.0) / _weight(policy, name), jobs[0].queued_at, name, 0) for name, jobs in projects.items()
    ]
    heapq.heapify(turns)
    while turns:
        _share, _since, name, taken = turns[0]
        jobs = projects[name]
        job = jobs[taken]
        ordered.append(job)
        charged[name] = charged.get(name, 0.0) + _charge(job, policy)
        if taken + 1 == len(jobs):
            heapq.heappop(turns)
        else:
            share = charged[name] / _weight(policy, name)
            heapq.heapreplace(turns, (share, jobs[taken + 1].queued_at, name, taken + 1))


def _charge(job: Waiting, policy: Policy) -> float:
    return job.n_devices * policy.expected_s(job)


def _weight(policy: Policy, project: str) -> float:
    return policy.weights.get(project, 1.0)
