"""Trains some of the model's own blocks and leaves all else as it is."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from transformers import PreTrainedModel

from trainer_core.contract import CauseCode
from trainer_core.contract.adapters import FreezeAdapter
from trainer_core.run.faults import Fault

LAST_NORMS = ("norm", "ln_f", "final_layer_norm", "final_layernorm", "layer_norm")


def freeze(model: PreTrainedModel, wanted: FreezeAdapter, heads: Iterable[str] = ()) -> PreTrainedModel:
    """Freeze all but the named blocks of each stack, and `heads`, which are new to the model.

    Raises Fault(config_invalid) where the model has no such blocks.
    """
    model.requires_grad_(False)
    for name, blocks in _stacks(model).items():
        if wanted.trainable_layers > len(blocks):
            raise Fault(
                CauseCode.CONFIG_INVALID,
                f"The model has {len(blocks)} blocks ({name}) and {wanted.trainable_layers} are to be trained.",
                hint=f"Set trainable_layers to {len(blocks)} or less.",
                param="adapter.trainable_layers",
            )
        n = wanted.trainable_layers
        for block in blocks[-n:] if wanted.side == "last" else blocks[:n]:
            block.requires_grad_(True)
    for name in heads:
        model.get_submodule(name).requires_grad_(True)
    if wanted.train_head:
        _train_head(model)
    embeddings = model.get_input_embeddings()
    embeddings.requires_grad_(wanted.train_embeddings)  # last: a tied output layer is the embeddings
    return model


def _stacks(model: PreTrainedModel) -> dict[str, nn.ModuleList]:
    """The lists of blocks by name, none inside another: one, or the encoder's and the decoder's."""
    lists = {name: part for name, part in model.named_modules() if isinstance(part, nn.ModuleList) and len(part)}
    outer = {name: part for name, part in lists.items() if not any(_is_inside(name, other) for other in lists)}
    if not outer:
        message = f"{type(model).__name__} holds its blocks in no list that could be counted."
        raise Fault(CauseCode.CONFIG_INVALID, message, hint="Use an adapter.", param="adapter.type")
    return outer


def _is_inside(name: str, other: str) -> bool:
    return name.startswith(f"{other}.")


def _train_head(model: PreTrainedModel) -> None:
    head = model.get_output_embeddings()
    if head is not None:
        head.requires_grad_(True)
    for name, module in model.base_model.named_children():
        if name in LAST_NORMS:
            module.requires_grad_(True)
