"""A trace replayed against the plan: when each job would have started and ended on given nodes. Pure.

The plan is the one the service uses. Running jobs are taken to tell their remaining time truly, as a run's own progress
does; of a waiting job only its time limit is known.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from api.core.planning.model import FreeNode, Needs, Part, Placement, Plan, Policy, Running, Usage, Waiting
from api.core.planning.plan import plan
from api.core.planning.rooms import Rooms

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

Decide = Callable[[Sequence[Waiting], Sequence[FreeNode], Sequence[Running], Usage, Policy], Plan]


class TraceJob(NamedTuple):
    """A job of a trace. `limit_s` null: it set no time limit."""

    job_id: str
    submit_s: float
    n_devices: int
    duration_s: float
    project: str = "default"
    user: str = ""
    priority: int = 0
    is_preemptible: bool = False
    limit_s: float | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of a trace. `never` are jobs that no node could hold. By project, in device-seconds: what it held, and
    what it was entitled to at each moment, which is an equal part of the devices, or less where it wanted less."""

    jobs: list[TraceJob]
    first_start_s: dict[str, float]
    end_s: dict[str, float]
    n_preemptions: int
    n_devices: int
    never: list[str]
    received: dict[str, float]
    entitled: dict[str, float]

    @property
    def utilisation(self) -> float:
        """Part of all device-seconds from the first submission to the last end that went into work that counts."""
        done = [job for job in self.jobs if job.job_id in self.end_s]
        if not done:
            return 0.0
        span_s = max(self.end_s.values()) - min(job.submit_s for job in done)
        return sum(job.n_devices * job.duration_s for job in done) / (self.n_devices * span_s) if span_s else 0.0

    def waits_s(self) -> list[float]:
        """Of each job that ran, from its submission to its first start, in ascending order."""
        return sorted(self.first_start_s[job.job_id] - job.submit_s for job in self.jobs if job.job_id in self.end_s)

    def fairness(self) -> float:
        """Jain's index over projects of what each got of the devices it was entitled to; 1 is even."""
        return jain([self.received[project] / due for project, due in self.entitled.items() if due > 0])


def jain(values: Sequence[float]) -> float:
    """(sum x)^2 / (n sum x^2): 1 where all are equal, 1/n where one has everything (Jain, Chiu and Hawe 1984)."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def fifo(
    waiting: Sequence[Waiting], nodes: Sequence[FreeNode], running: Sequence[Running], usage: Usage, policy: Policy
) -> Plan:
    """Plain first in, first out: who came first starts first, and nobody passes the one that does not fit."""
    rooms = Rooms(nodes, running, policy.soon_s)
    ordered = sorted(waiting, key=lambda job: (job.queued_at, job.job_id))
    found = Plan([], [], ordered, {}, {})
    for job in ordered:
        index = rooms.index(job.needs)
        shape = index.shape(job.n_devices, policy.spans_nodes)
        if shape is None:
            continue  # fits nowhere, ever
        chosen = index.find(*shape, math.inf)
        if chosen is None:
            break
        parts = tuple(Part(room.node.node_id, index.take(room, shape[1])) for room in chosen)
        found.placements.append(Placement(job.job_id, parts))
    return found


def simulate(
    jobs: Iterable[TraceJob],
    nodes: Sequence[FreeNode],
    policy: Policy,
    *,
    decide: Decide = plan,
    half_life_s: float = 7 * 86_400.0,
    look_every_s: float = 2.0,
    leave_s: float = 20.0,
    restart_s: float = 60.0,
    checkpoint_every_s: float = 600.0,
) -> Replay:
    """Replays the trace. A preempted run leaves after `leave_s`, and does `restart_s` of work again when it goes on."""
    world = _World(nodes, half_life_s, restart_s, checkpoint_every_s)
    ordered = sorted(jobs, key=lambda job: (job.submit_s, job.job_id))
    for job in ordered:
        world.at(job.submit_s, _Event("submit", job))
    while world.events:
        world.advance(look_every_s)
        if world.waiting:
            found = decide(world.queue(), world.nodes(), world.running(), Usage(world.shares), policy)
            for placement in found.placements:
                world.start(placement)
            for preemption in found.preemptions:
                world.preempt(preemption.job_id, leave_s)
    n_devices = sum(len(node.devices) for node in nodes)
    return Replay(
        ordered,
        world.first_start_s,
        world.end_s,
        world.n_preemptions,
        n_devices,
        sorted(world.waiting),
        world.received,
        world.entitled,
    )


def equal_parts(wanted: Mapping[str, float], total: float) -> dict[str, float]:
    """Everybody gets the same, or what he wants where that is less (max-min fair)."""
    parts: dict[str, float] = {}
    for place, (name, amount) in enumerate(sorted(wanted.items(), key=lambda entry: (entry[1], entry[0]))):
        parts[name] = min(amount, (total - sum(parts.values())) / (len(wanted) - place))
    return parts


class _Event(NamedTuple):
    kind: str
    job: TraceJob
    run: int = 0  # which of the job's runs it speaks of; an older one's end is void


@dataclass
class _Run:
    placement: Placement
    began_s: float
    ends_s: float
    number: int
    is_leaving: bool = False


@dataclass
class _World:
    _nodes: Sequence[FreeNode]
    _half_life_s: float
    _restart_s: float
    _checkpoint_every_s: float
    now_s: float = 0.0
    events: list[tuple[float, int, _Event]] = field(default_factory=list)
    waiting: dict[str, TraceJob] = field(default_factory=dict)
    runs: dict[str, _Run] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    first_start_s: dict[str, float] = field(default_factory=dict)
    end_s: dict[str, float] = field(default_factory=dict)
    n_preemptions: int = 0
    received: dict[str, float] = field(default_factory=dict)
    entitled: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ticket = itertools.count()
        self._n_devices = sum(len(node.devices) for node in self._nodes)
        self._jobs: dict[str, TraceJob] = {}
        self._left_s: dict[str, float] = {}
        self._free = {(node.node_id, node.devices): set(node.free) for node in self._nodes}
        self._home = {
            (node.node_id, index): (node.node_id, node.devices) for node in self._nodes for index in node.devices
        }

    def at(self, when_s: float, event: _Event) -> None:
        heapq.heappush(self.events, (when_s, next(self._ticket), event))

    def advance(self, look_every_s: float) -> None:
        """To the scheduler's next look at which there is something new."""
        when_s = math.ceil(self.events[0][0] / look_every_s) * look_every_s
        self._use(when_s - self.now_s)
        self.now_s = when_s
        while self.events and self.events[0][0] <= when_s:
            self._happen(heapq.heappop(self.events)[2])

    def _use(self, for_s: float) -> None:
        rate = math.log(2) / self._half_life_s
        kept, used = math.exp(-rate * for_s), -math.expm1(-rate * for_s) / rate
        self.shares = {project: share * kept for project, share in self.shares.items()}
        wanted: dict[str, float] = {}
        for job in self.waiting.values():
            wanted[job.project] = wanted.get(job.project, 0.0) + job.n_devices
        for job_id in self.runs:
            job = self._jobs[job_id]
            self.shares[job.project] = self.shares.get(job.project, 0.0) + job.n_devices * used
            self.received[job.project] = self.received.get(job.project, 0.0) + job.n_devices * for_s
            wanted[job.project] = wanted.get(job.project, 0.0) + job.n_devices
        for project, part in equal_parts(wanted, self._n_devices).items():
            self.entitled[project] = self.entitled.get(project, 0.0) + part * for_s
            self.received.setdefault(project, 0.0)

    def _happen(self, event: _Event) -> None:
        job = event.job
        if event.kind == "submit":
            self._jobs[job.job_id] = job
            self._left_s[job.job_id] = job.duration_s
            self.waiting[job.job_id] = job
            return
        run = self.runs.get(job.job_id)
        if run is None or run.number != event.run:
            return
        del self.runs[job.job_id]
        for part in run.placement.parts:
            for index in part.devices:
                self._free[self._home[part.node_id, index]].add(index)
        if event.kind == "end":
            self.end_s[job.job_id] = run.ends_s
        else:
            self._left_s[job.job_id] = max(0.0, run.ends_s - self.now_s) + self._restart_s
            self.waiting[job.job_id] = job

    def queue(self) -> list[Waiting]:
        return [
            Waiting(
                job.job_id, job.n_devices, job.priority, EPOCH + timedelta(seconds=job.submit_s), job.project, job.user,
                Needs(kind=job.kind), limit_s=job.limit_s,
            )
            for job in self.waiting.values()
        ]  # fmt: skip

    def nodes(self) -> list[FreeNode]:
        return [node._replace(free=tuple(sorted(self._free[node.node_id, node.devices]))) for node in self._nodes]

    def running(self) -> list[Running]:
        return [
            Running(
                job_id, run.placement.parts, job.priority, job.project, job.user, job.is_preemptible, run.is_leaving,
                max(0.0, run.ends_s - self.now_s), (self.now_s - run.began_s) % self._checkpoint_every_s,
            )
            for job_id, run in self.runs.items()
            for job in [self._jobs[job_id]]
        ]  # fmt: skip

    def start(self, placement: Placement) -> None:
        job = self.waiting.pop(placement.job_id)
        for part in placement.parts:
            for index in part.devices:
                self._free[self._home[part.node_id, index]].remove(index)  # KeyError: given twice
        number = next(self._ticket)
        ends_s = self.now_s + self._left_s[job.job_id]
        self.runs[job.job_id] = _Run(placement, self.now_s, ends_s, number)
        self.first_start_s.setdefault(job.job_id, self.now_s)
        self.at(ends_s, _Event("end", job, number))

    def preempt(self, job_id: str, leave_s: float) -> None:
        run = self.runs[job_id]
        run.is_leaving = True
        self.n_preemptions += 1
        self.at(min(self.now_s + leave_s, run.ends_s), _Event("leave", self._jobs[job_id], run.number))
