"""Starting points of the submit form: a name, when to take it, and what it writes into the body."""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "lora": {
        "title": "LoRA adapter",
        "help": "Little memory, small files, quick to try. The usual choice.",
        "body": {
            "adapter": {"type": "lora", "r": 16, "lora_alpha": 32},
            "training": {"num_train_epochs": 3, "per_device_train_batch_size": 4},
        },
    },
    "trial": {
        "title": "Quick trial",
        "help": "Twenty steps, to see that rows, lengths and memory are right.",
        "body": {
            "adapter": {"type": "lora", "r": 8, "lora_alpha": 16},
            "training": {"max_steps": 20, "logging_steps": 1, "per_device_train_batch_size": 2},
        },
    },
    "full": {
        "title": "Every weight",
        "help": "For small models or large data: the most memory, the largest files.",
        "body": {
            "adapter": None,
            "training": {"num_train_epochs": 2, "learning_rate": 2e-5, "gradient_checkpointing": True},
        },
    },
    "zero": {
        "title": "Every weight over several devices",
        "help": "DeepSpeed ZeRO 3: parameters, gradients and optimizer are shared out.",
        "body": {
            "adapter": None,
            "training": {"num_train_epochs": 2, "learning_rate": 2e-5, "gradient_checkpointing": True},
            "parallel": {"strategy": "deepspeed", "n_processes": 2, "zero_stage": 3},
        },
    },
}
