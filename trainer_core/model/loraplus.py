"""LoRA+'s optimizer: two learning rates, one for lora_A and a greater one for lora_B (Hayou et al., 2024)."""

from __future__ import annotations

from typing import Any

import torch
from peft.optimizers import create_loraplus_optimizer
from transformers import Trainer, TrainingArguments


def loraplus(model: Any, args: TrainingArguments, ratio: float) -> torch.optim.Optimizer:
    """The optimizer that the arguments name, with PEFT's groups. A schedule scales each group's own rate."""
    optimizer_class, options = Trainer.get_optimizer_cls_and_kwargs(args, model)
    rate = options.pop("lr", args.learning_rate)
    optimizer: torch.optim.Optimizer = create_loraplus_optimizer(
        model,
        optimizer_class,
        lr=rate,
        loraplus_lr_ratio=ratio,
        loraplus_weight_decay=args.weight_decay,
        loraplus_lr_embedding=rate,
        **options,
    )
    # DeepSpeed refuses a group without parameters.
    optimizer.param_groups = [group for group in optimizer.param_groups if group["params"]]
    return optimizer
