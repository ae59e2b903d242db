"""Whole float32 weights out of ZeRO's shards, by DeepSpeed's own rule. Loaded only where an export asks for it.

DeepSpeed unpickles its shards without restraint, so the caller has proved the manifest and scanned every pickle.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

from trainer_core.contract import CauseCode
from trainer_core.run.faults import Fault

TAG = re.compile(r"global_step\d+")


def read_fp32(checkpoint: Path, *, has_adapter: bool) -> dict[str, torch.Tensor]:
    """Parameters by name; with an adapter the trained ones alone. Raises Fault(checkpoint_invalid)."""
    try:
        tag = (checkpoint / "latest").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise _unusable("it has no file `latest` that names them") from error
    if not TAG.fullmatch(tag):
        raise _unusable(f"`latest` names {tag[:60]!r}")
    try:
        state = get_fp32_state_dict_from_zero_checkpoint(str(checkpoint), tag, exclude_frozen_parameters=has_adapter)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise _unusable(str(error).splitlines()[0][:300]) from error
    return dict(state)


def _unusable(why: str) -> Fault:
    return Fault(
        CauseCode.CHECKPOINT_INVALID,
        f"The checkpoint's ZeRO shards cannot be put together: {why}.",
        hint="Export another checkpoint, or this one's gathered weights with kind full.",
        param="checkpoint",
    )
