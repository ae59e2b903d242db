"""Looks into a checkpoint's pickles before anything unpickles them: only names that our own checkpoints need may occur.

DeepSpeed loads its shards with an unrestricted unpickler, so a checkpoint that somebody sent could run any code.
Nothing here executes a pickle.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch

from trainer_core.contract import CauseCode
from trainer_core.run.faults import Fault

PICKLE_SUFFIXES = frozenset({".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt"})

# Exact names, beyond those torch's own restricted loader takes. None of them runs code of its argument's choosing.
ALLOWED = frozenset(
    {
        "numpy._core.multiarray._reconstruct",
        "numpy.core.multiarray._reconstruct",
        "numpy.ndarray",
        "numpy.dtype",
        "numpy.dtypes.UInt32DType",
        "argparse.Namespace",
        "deepspeed.runtime.fp16.loss_scaler.LossScaler",
        "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler",
        "deepspeed.runtime.zero.config.ZeroStageEnum",
        "deepspeed.utils.tensor_fragment.fragment_address",
        "deepspeed.utils.tensor_fragment.tensor_fragment",
    }
)
# training_args.bin is never read back; it may hold the classes that describe a TrainingArguments, and only classes.
ARGUMENTS_CLASS = re.compile(r"(transformers|accelerate)\.([a-z_0-9]+\.)*[A-Z]\w*")


def refuse_foreign_pickles(folder: Path) -> None:
    """Raises Fault(checkpoint_invalid) at the first pickle file that names anything outside the allowed list."""
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in PICKLE_SUFFIXES and path.is_file():
            foreign = foreign_names(path)
            if foreign:
                raise _refused(path, f"names {', '.join(foreign[:5])}, which no checkpoint of ours holds")


def foreign_names(path: Path) -> list[str]:
    """Names of classes and functions in the pickle of a torch zip file that are not allowed.

    Raises Fault(checkpoint_invalid) when the file is not torch's zip format: older ones cannot be looked into.
    """
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception as error:  # whatever the parser trips over, a file it cannot read through is refused
        raise _refused(path, f"cannot be looked into ({type(error).__name__}: {error})") from error
    if path.name == "training_args.bin":
        names = [name for name in names if not ARGUMENTS_CLASS.fullmatch(name)]
    return sorted(name for name in names if name not in ALLOWED)


def _refused(path: Path, why: str) -> Fault:
    return Fault(
        CauseCode.CHECKPOINT_INVALID,
        f"{path.name} {why}. Nothing of it was loaded.",
        hint="Start from the weights alone (mode: weights), which are safetensors and hold no code.",
        param="resume.checkpoint",
        details={"file": path.name},
    )
