"""Reads saved weights back: all there, none empty, all finite. Only what passes is announced as a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import PreTrainedModel

from trainer_core.contract import CauseCode
from trainer_core.run.faults import Fault

# What PEFT strips from or adds to a parameter's name when it saves an adapter.
PROMPTS = "prompt_embeddings"
ADAPTER_MARKS = (".default", ".modules_to_save", ".base_layer", ".original_module", ".weight")


def expected_names(model: PreTrainedModel, has_adapter: bool) -> list[frozenset[str]]:
    """One set a parameter that must be saved, of the names it may be saved under (tied weights have several)."""
    # What the model computes anew when it is loaded (Marian's sinusoids) is in no file.
    never_saved = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    names: dict[int, set[str]] = {}
    if has_adapter and any("prompt_encoder." in name for name, _ in model.named_parameters()):
        return [frozenset({PROMPTS})]  # PEFT saves what comes out of their network
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if name not in never_saved and (parameter.requires_grad or not has_adapter):
            names.setdefault(id(parameter), set()).add(_bare(name) if has_adapter else name)
    return [frozenset(aliases) for aliases in names.values()]


def check_weights(folder: Path, expected: Iterable[frozenset[str]], has_adapter: bool) -> int:
    """Read every tensor of a checkpoint's weights; returns how many there are.

    Raises Fault(checkpoint_invalid) for missing or empty ones, Fault(non_finite_loss) for NaN or infinity.
    """
    files = sorted(folder.glob("adapter_model*.safetensors" if has_adapter else "model*.safetensors"))
    if not files:
        raise _incomplete(f"{folder.name} holds no weights")
    saved: set[str] = set()
    for path in files:
        saved |= _check_file(path)
    bare = {_bare(name) for name in saved} if has_adapter else saved
    missing = [sorted(aliases)[0] for aliases in expected if not aliases & bare]
    if missing:
        raise _incomplete(f"{folder.name} lacks the weights {missing[0]} ({len(missing)} in all)")
    return len(saved)


def _check_file(path: Path) -> set[str]:
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
        for name in names:
            tensor = file.get_tensor(name)
            if tensor.numel() == 0:
                raise _incomplete(f"{name} in {path.name} is empty")
            if not torch.isfinite(tensor).all():
                raise Fault(
                    CauseCode.NON_FINITE_LOSS,
                    f"The weights {name} hold NaN or infinity.",
                    hint="Lower the learning rate, or clip gradients with max_grad_norm.",
                    param="training.learning_rate",
                )
    return set(names)


def _bare(name: str) -> str:
    for mark in ADAPTER_MARKS:
        name = name.replace(mark, "")
    return name


def _incomplete(message: str) -> Fault:
    return Fault(CauseCode.CHECKPOINT_INVALID, f"A checkpoint was saved wrong: {message}.")
