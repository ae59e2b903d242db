"""The network behind learnt prompts, beside a checkpoint: PEFT saves only the prompts that come out of it.

Loading needs no more than those; going on with the training does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peft import PeftModel
from safetensors.torch import load_file, save_file

from trainer_core.contract import CauseCode
from trainer_core.run.faults import Fault

ENCODER_WEIGHTS = "prompt_encoder.safetensors"


def save_prompt_encoder(model: Any, checkpoint: Path) -> None:
    """Where the model has one."""
    if not _has_encoder(model):
        return
    encoder = model.prompt_encoder[model.active_adapter]
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in encoder.state_dict().items()}
    save_file(weights, checkpoint / ENCODER_WEIGHTS, metadata={"format": "pt"})


def restore_prompt_encoder(model: Any, checkpoint: Path) -> bool:
    """Whether the checkpoint's network was put into the model. Raises Fault(checkpoint_invalid) on another one."""
    if not _has_encoder(model) or not (checkpoint / ENCODER_WEIGHTS).is_file():
        return False
    try:
        model.prompt_encoder[model.active_adapter].load_state_dict(load_file(checkpoint / ENCODER_WEIGHTS))
    except RuntimeError as error:
        raise Fault(
            CauseCode.CHECKPOINT_INVALID,
            f"The checkpoint's adapter does not fit this job's adapter: {str(error).splitlines()[0]}",
            hint="Use the same adapter block as the run that saved it.",
            param="resume",
        ) from error
    return True


def _has_encoder(model: Any) -> bool:
    return isinstance(model, PeftModel) and bool(model.active_peft_config.is_prompt_learning)
