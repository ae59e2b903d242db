"""Faults: the one exception a training program raises on purpose, and how every other exception becomes a cause.

Torch-free on purpose: the program reports a failed import of torch with it.
"""

from __future__ import annotations

import errno
import traceback
from typing import Any

from trainer_core.contract import Cause, CauseCode
from trainer_core.problems import OptionsInvalid

TRACEBACK_CHARACTERS = 4_000

# What gloo and NCCL say when the process at the other end is gone (their own texts; neither has an exception class).
PEER_IS_GONE = ("Connection closed by peer", "Connection reset by peer", "remote process exited", "Broken pipe")


class Fault(Exception):
    """A failure whose cause is known. `Fault(CauseCode.DATA_INVALID, "row 3 ...", hint="...", line=3)`."""

    def __init__(self, code: CauseCode, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.cause = Cause(code=code, message=message, **fields)


class StopAsked(Exception):
    """The STOP file was found between two stages or during evaluation: leave without a failure."""


def cause_of(error: BaseException, rank: int = 0) -> Cause:
    """The typed cause of any exception; the traceback's tail goes into its details."""
    cause = error.cause if isinstance(error, Fault) else _recognised(error)
    details = {**cause.details, "exception": type(error).__name__}
    if not isinstance(error, Fault):
        details["traceback"] = "".join(traceback.format_exception(error))[-TRACEBACK_CHARACTERS:]
    return cause.model_copy(update={"details": details, "rank": rank if cause.rank is None else cause.rank})


def _recognised(error: BaseException) -> Cause:
    text = str(error)
    if isinstance(error, OptionsInvalid):
        first = error.problems[0]
        details = {"problems": [str(problem) for problem in error.problems]}
        return Cause(
            code=CauseCode.CONFIG_INVALID, message=first.message, hint=first.hint, param=first.param, details=details
        )
    # torch.OutOfMemoryError by name: this module must not import torch.
    if any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return Cause(
            code=CauseCode.GPU_OOM,
            message=f"The device ran out of memory: {_first_line(text)}",
            hint="Lower per_device_train_batch_size or max_length, set gradient_checkpointing, or offload with ZeRO.",
        )
    if isinstance(error, MemoryError):
        return Cause(
            code=CauseCode.HOST_OOM,
            message="The machine ran out of memory.",
            hint="Use fewer processes on this machine, a smaller batch, or a smaller model.",
        )
    if _is_disk_full(error):
        return Cause(
            code=CauseCode.DISK_FULL,
            message=f"The disk is full, or a file grew past its limit: {_first_line(text)}",
            hint="Free space on the disk of the run folder; then resume from the last checkpoint, which is intact.",
        )
    if isinstance(error, RuntimeError) and any(words in text for words in PEER_IS_GONE):
        return Cause(
            code=CauseCode.RANK_DIED,
            message=f"Another process of this run went away: {_first_line(text)}",
            hint="See the log files of the other ranks, and whether the machine ran out of memory.",
        )
    return Cause(code=CauseCode.INTERNAL, message=f"{type(error).__name__}: {_first_line(text)}")


def _is_disk_full(error: BaseException) -> bool:
    """ENOSPC and its kin, also where a library wrapped them: safetensors and torch keep only the text."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        if any(words in str(seen) for words in ("No space left on device", "File too large", "Disk quota exceeded")):
            return True
        # torch's zip writer says only this when a write came back short.
        if "PytorchStreamWriter failed writing file" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[0][:500]
