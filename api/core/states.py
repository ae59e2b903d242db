"""The job's states, what each may become, and what words the rest of the house uses for health and attempts."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    VALIDATING = "validating"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


MAY_BECOME: dict[State, frozenset[State]] = {
    State.VALIDATING: frozenset({State.QUEUED, State.FAILED, State.CANCELLED}),
    State.QUEUED: frozenset({State.STARTING, State.CANCELLED, State.PAUSED, State.FAILED}),
    State.STARTING: frozenset({State.RUNNING, State.QUEUED, State.FAILED, State.CANCELLING, State.PAUSING}),
    State.RUNNING: frozenset({State.SUCCEEDED, State.FAILED, State.QUEUED, State.CANCELLING, State.PAUSING}),
    State.PAUSING: frozenset({State.PAUSED, State.SUCCEEDED, State.FAILED, State.CANCELLING}),
    State.PAUSED: frozenset({State.QUEUED, State.CANCELLED}),
    State.CANCELLING: frozenset({State.CANCELLED, State.SUCCEEDED, State.FAILED}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
}

TERMINAL = frozenset(state for state, targets in MAY_BECOME.items() if not targets)
ON_DEVICES = frozenset({State.STARTING, State.RUNNING, State.PAUSING, State.CANCELLING})


def predecessors(target: State) -> frozenset[State]:
    """The states that may become `target`."""
    return frozenset(state for state, targets in MAY_BECOME.items() if target in targets)


class Health(StrEnum):
    OK = "ok"
    STALLED = "stalled"
    UNREACHABLE = "unreachable"


class AttemptState(StrEnum):
    """placed: devices taken; launched: a supervisor started; running: the trainer spoke; ended: devices are free."""

    PLACED = "placed"
    LAUNCHED = "launched"
    RUNNING = "running"
    ENDED = "ended"


class NodeState(StrEnum):
    """draining: takes no further work, and runs on it end or leave; cordoned: takes none, and its runs go on."""

    READY = "ready"
    DRAINING = "draining"
    CORDONED = "cordoned"
    UNREACHABLE = "unreachable"
