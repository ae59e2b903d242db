"""What each cause of failure leads to: try again, or stop; whose fault it counts as; how long the next try waits. Pure.

Faults of the service, of a node and of the user have budgets of their own: a storage that is away for an hour uses up
nothing that a dying node may need. What fails the same way again is not tried again at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from trainer_core.contract import CauseCode


class Decision(StrEnum):
    RETRY = "retry"  # queued again, resumed from the newest complete checkpoint; counts against the budget
    RETRY_FREE = "retry_free"  # queued again and not counted: nothing went wrong
    STOP = "stop"  # failed


class Fault(StrEnum):
    """Whose budget an attempt is taken from."""

    SERVICE = "service"
    NODE = "node"
    USER = "user"


class Budgets(NamedTuple):
    """How many attempts of a job each kind of fault may end; the last of them ends the job."""

    service: int = 3
    node: int = 3
    user: int = 1

    def of(self, fault: Fault) -> int:
        return {Fault.SERVICE: self.service, Fault.NODE: self.node, Fault.USER: self.user}[fault]


# Null: never tried again, because it would fail the same way.
POLICY: dict[CauseCode, Fault | Decision | None] = {
    CauseCode.DATA_INVALID: None,
    CauseCode.CONFIG_INVALID: None,
    CauseCode.MODEL_UNAVAILABLE: None,
    CauseCode.NO_TRAINABLE_TOKENS: None,
    CauseCode.GPU_OOM: Fault.USER,
    CauseCode.HOST_OOM: Fault.NODE,
    CauseCode.NON_FINITE_LOSS: Fault.USER,
    CauseCode.LOSS_FLAT: None,
    CauseCode.STALLED: Fault.NODE,
    CauseCode.RANK_DIED: Fault.NODE,
    CauseCode.NODE_LOST: Fault.NODE,
    CauseCode.DISK_FULL: Fault.NODE,
    CauseCode.TIMEOUT: None,
    CauseCode.PREEMPTED: Decision.RETRY_FREE,
    CauseCode.STORAGE_UNAVAILABLE: Fault.SERVICE,
    CauseCode.CHECKPOINT_INVALID: None,
    CauseCode.WORLD_SIZE_MISMATCH: None,
    CauseCode.INTERNAL: Fault.SERVICE,
}
# What may lie in one device; everything else that is the node's fault is the whole node's.
OF_A_DEVICE = frozenset({CauseCode.RANK_DIED, CauseCode.STALLED})


def fault_of(code: CauseCode) -> Fault | None:
    """Whose fault it counts as; null: nobody's budget is touched."""
    rule = POLICY[code]
    return rule if isinstance(rule, Fault) else None


def decide(code: CauseCode, faults: Mapping[str, int], budgets: Budgets) -> Decision:
    """What follows when an attempt ends by `code`; `faults` counts the earlier attempts by whose fault ended them."""
    rule = POLICY[code]
    if isinstance(rule, Fault):
        return Decision.STOP if faults.get(rule, 0) + 1 >= budgets.of(rule) else Decision.RETRY
    return rule or Decision.STOP


def backoff_s(n_faults: int, first_s: float, longest_s: float) -> float:
    """Seconds before the try that follows the `n_faults`-th fault of a kind: doubled each time, up to `longest_s`."""
    return float(min(longest_s, first_s * 2.0 ** min(n_faults - 1, 64)))
