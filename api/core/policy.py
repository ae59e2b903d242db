"""What each cause of failure leads to: try again, or stop. Pure.

A fault of the service or of a node has a budget of attempts; what the user asked for fails the same way again, so it
is not tried again.
"""

from __future__ import annotations

from enum import StrEnum

from trainer_core.contract import CauseCode


class Decision(StrEnum):
    RETRY = "retry"  # queued again, resumed from the newest complete checkpoint; counts against the budget
    RETRY_FREE = "retry_free"  # queued again and not counted: nothing went wrong
    STOP = "stop"  # failed


POLICY: dict[CauseCode, Decision] = {
    CauseCode.DATA_INVALID: Decision.STOP,
    CauseCode.CONFIG_INVALID: Decision.STOP,
    CauseCode.MODEL_UNAVAILABLE: Decision.STOP,
    CauseCode.NO_TRAINABLE_TOKENS: Decision.STOP,
    CauseCode.GPU_OOM: Decision.STOP,
    CauseCode.HOST_OOM: Decision.RETRY,
    CauseCode.NON_FINITE_LOSS: Decision.STOP,
    CauseCode.STALLED: Decision.RETRY,
    CauseCode.RANK_DIED: Decision.RETRY,
    CauseCode.NODE_LOST: Decision.RETRY,
    CauseCode.DISK_FULL: Decision.RETRY,
    CauseCode.TIMEOUT: Decision.STOP,
    CauseCode.PREEMPTED: Decision.RETRY_FREE,
    CauseCode.STORAGE_UNAVAILABLE: Decision.RETRY,
    CauseCode.CHECKPOINT_INVALID: Decision.STOP,
    CauseCode.WORLD_SIZE_MISMATCH: Decision.STOP,
    CauseCode.INTERNAL: Decision.RETRY,
}


def decide(code: CauseCode, n_failures: int, max_attempts: int) -> Decision:
    """What follows when an attempt ends by `code`; `n_failures` counts the earlier attempts that used the budget."""
    decision = POLICY[code]
    if decision is Decision.RETRY and n_failures + 1 >= max_attempts:
        return Decision.STOP
    return decision


def uses_budget(code: CauseCode) -> bool:
    """Whether an attempt that ended by `code` counts: the fault was the service's or a node's."""
    return POLICY[code] is Decision.RETRY
