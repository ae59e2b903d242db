"""What the plan is made from and what it says. Pure values: no database, no clock; durations are seconds from now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

Scope = Literal["project", "user"]
Account = tuple[Scope, str]

# What a run is charged in the order of projects while nothing better is known of its length.
UNKNOWN_RUN_S = 3600.0


class Needs(NamedTuple):
    """What a device must be for a job. Hashable: jobs with the same needs are looked up together."""

    kind: str | None = None
    min_memory_bytes: int | None = None
    labels: frozenset[tuple[str, str]] = frozenset()
    excluded: frozenset[tuple[str, int | None]] = frozenset()  # (node id, device index or None for the whole node)


ANY = Needs()


class Waiting(NamedTuple):
    """A queued job, as far as placing it goes. `limit_s` is enforced, `guess_s` is only likely."""

    job_id: str
    n_devices: int
    priority: int
    queued_at: datetime
    project: str = "default"
    user: str = ""
    needs: Needs = ANY
    limit_s: float | None = None
    guess_s: float | None = None


class Part(NamedTuple):
    """The devices of one node that a gang has or gets."""

    node_id: str
    devices: tuple[int, ...]


class Running(NamedTuple):
    """A job on devices. `left_s` null: nobody can say; `lost_s`: seconds since what it could be resumed from."""

    job_id: str
    parts: tuple[Part, ...]
    priority: int = 0
    project: str = "default"
    user: str = ""
    is_preemptible: bool = False
    is_leaving: bool = False
    left_s: float | None = None
    lost_s: float = 0.0

    @property
    def n_devices(self) -> int:
        return sum(len(part.devices) for part in self.parts)


class FreeNode(NamedTuple):
    """The devices of one sort on a node that answers: the indexes of all, and of those that are free.

    A node with devices of several sorts is several of these: a gang never mixes sorts on a node.
    """

    node_id: str
    name: str
    free: tuple[int, ...]
    devices: tuple[int, ...]
    kind: str = "cpu"
    memory_bytes: int | None = None
    labels: frozenset[tuple[str, str]] = frozenset()

    def suits(self, needs: Needs) -> bool:
        return (
            (needs.kind is None or needs.kind == self.kind)
            and (needs.min_memory_bytes is None or (self.memory_bytes or 0) >= needs.min_memory_bytes)
            and needs.labels <= self.labels
            and (self.node_id, None) not in needs.excluded
        )


class Limits(NamedTuple):
    """What a project or a user may hold; null: as much as there is. `device_hours` count over a sliding window."""

    devices: int | None = None
    running: int | None = None
    queued: int | None = None
    device_hours: float | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Device-seconds: `shares` by project, decaying with age; `window` by account within the window of limits."""

    shares: Mapping[str, float] = field(default_factory=dict)
    window: Mapping[Account, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policy:
    """How the plan decides. `soon_s`: nobody is preempted for a job that starts within this anyway."""

    weights: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[Account, Limits] = field(default_factory=dict)
    default_limits: Mapping[Scope, Limits] = field(default_factory=dict)
    spans_nodes: bool = False
    preempts: bool = True
    soon_s: float = 60.0
    typical_run_s: float | None = None
    max_preempting: int = 8  # jobs a plan looks for victims for; the next plan goes on

    def expected_s(self, job: Waiting) -> float:
        """How long the job will likely run; a guess where nothing is known."""
        if job.guess_s is not None:
            return job.guess_s
        known = [each for each in (job.limit_s, self.typical_run_s) if each is not None]
        return min(known, default=UNKNOWN_RUN_S)

    def limits_of(self, account: Account) -> Limits:
        return self.limits.get(account) or self.default_limits.get(account[0]) or Limits()


class Placement(NamedTuple):
    """All devices of a gang; more than one part only where the policy lets gangs span nodes."""

    job_id: str
    parts: tuple[Part, ...]


class Preemption(NamedTuple):
    """A run to be stopped at a checkpoint, and the waiting job that gets its devices."""

    job_id: str
    for_job_id: str
    reason: str


class Kept(NamedTuple):
    """Devices held back for a job that does not fit yet. `start_s` null: it depends on runs whose end is not known."""

    node_names: tuple[str, ...]
    n_missing: int
    start_s: float | None
    is_preempting: bool = False


class Standing(NamedTuple):
    """Place in the queue, from 1, why the job waits, in words, and in how many seconds it will likely start."""

    position: int
    reason: str
    eta_s: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done now, and why everybody else waits: `refusals` (limits, impossible needs) and `kept`."""

    placements: list[Placement]
    preemptions: list[Preemption]
    ordered: list[Waiting]
    refusals: dict[str, str]
    kept: dict[str, Kept]
