"""The model card: Hugging Face front matter and where every part of the model came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainer_core.contract import RunConfig, peft_part
from trainer_core.contract.adapters import describe
from trainer_core.methods_table import METHODS, Method

# A hub id in base_model lets the hub link the two models; a local name would break its page.
CARD = """---
{front_matter}
---

# {name}

{what} of **{model}** by {title}, made by Trainyard.

| | |
|---|---|
| Base model | {model}{revision} |
| Method | {method} |
| Train data, sha256 | `{train_sha256}` |
| Eval data, sha256 | {eval_sha256} |
| Parameters | {parameters} |
| Rows trained on | {n_train_rows} |
| Steps | {total_steps} |
| Best checkpoint | {best} |
| Processes | {n_processes} on {device} |

## Results

{results}

## Loading

```python
{recipe}
```

## Configuration

```json
{config}
```

## Versions

{versions}
"""

WHAT = {
    "lora": "A LoRA adapter",
    "ia3": "An IA3 adapter",
    "prompt_tuning": "A learnt prompt",
    "prefix_tuning": "A learnt prefix",
    "p_tuning": "A learnt prompt",
    "freeze": "A fine-tune of some blocks",
}

ADAPTER_RECIPE = """from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base = AutoModelForCausalLM.from_pretrained("BASE")  # {model}
model = PeftModel.from_pretrained(base, "CHECKPOINT_FOLDER")
tokenizer = AutoTokenizer.from_pretrained("CHECKPOINT_FOLDER")"""

# The base model is made with this job's labels first: their number and names stand in the checkpoint's config.json.
HEADED_ADAPTER_RECIPE = """from peft import PeftModel
from transformers import AutoConfig, {auto_class}, AutoTokenizer

config = AutoConfig.from_pretrained("CHECKPOINT_FOLDER")
base = {auto_class}.from_pretrained("BASE_MODEL", config=config, ignore_mismatched_sizes=True)  # {model}
model = PeftModel.from_pretrained(base, "CHECKPOINT_FOLDER")
tokenizer = AutoTokenizer.from_pretrained("CHECKPOINT_FOLDER")"""

FULL_RECIPE = """from transformers import {auto_class}, AutoTokenizer

model = {auto_class}.from_pretrained("CHECKPOINT_FOLDER")
tokenizer = AutoTokenizer.from_pretrained("CHECKPOINT_FOLDER")"""


def model_card(
    config: RunConfig,
    resolved: Mapping[str, Any],
    metrics: Mapping[str, Any],
    versions: Mapping[str, str],
    n_train_rows: int,
    total_steps: int,
    best_step: int | None,
    parameters: Mapping[str, Any] | None = None,
) -> str:
    """The text of README.md. `resolved` is the configuration without paths of the machine that trained."""
    adapter, method = config.adapter, METHODS[config.method]
    label = "SFT" if config.method == "sft" else config.method
    return CARD.format(
        front_matter=_front_matter(config),
        name=config.job_name,
        what=WHAT[adapter.type] if adapter else "A full fine-tune",
        model=config.model.name,
        revision=f" @ {config.model.revision}" if config.model.revision else "",
        method=f"{label}, {describe(adapter)}{_bits(config)}",
        parameters=_parameters(parameters),
        title=method.title,
        train_sha256=config.data.train_sha256 or "not recorded",
        eval_sha256=_eval_data(config),
        n_train_rows=n_train_rows,
        total_steps=total_steps,
        best=f"step {best_step}, by {config.metric_for_best}" if best_step is not None else "none was rated",
        n_processes=config.parallel.n_processes,
        device=config.device,
        results="\n".join(f"- {name}: {value}" for name, value in sorted(metrics.items())),
        recipe=_recipe(method, peft_part(adapter) is not None).format(
            model=config.model.name, auto_class=method.auto_class
        ),
        config=json.dumps(resolved, indent=2, sort_keys=True, allow_nan=False),
        versions="\n".join(f"- {name} {version}" for name, version in sorted(versions.items())),
    )


def _parameters(counts: Mapping[str, Any] | None) -> str:
    if not counts:
        return "not counted"
    kinds = ", ".join(f"{number:,} {dtype}" for dtype, number in sorted(counts["by_dtype"].items()))
    share = counts["trainable"] / max(counts["total"], 1)
    return f"{counts['trainable']:,} trained of {counts['total']:,} ({share:.4%}); {kinds}"


def _bits(config: RunConfig) -> str:
    return f", on a base in {config.quantization.bits}" if config.quantization else ""


def _recipe(method: Method, is_adapter: bool) -> str:
    if not is_adapter:
        return FULL_RECIPE
    if method.has_labels:
        return HEADED_ADAPTER_RECIPE
    return ADAPTER_RECIPE.replace("AutoModelForCausalLM", method.auto_class)


def _front_matter(config: RunConfig) -> str:
    """YAML by hand: JSON strings are YAML strings, so no name can break out of its line."""
    lines = [
        "library_name: " + ("peft" if peft_part(config.adapter) else "transformers"),
        f"pipeline_tag: {METHODS[config.method].pipeline}",
    ]
    if not config.model.source.startswith("/"):
        lines.append(f"base_model: {json.dumps(config.model.source)}")
    return "\n".join([*lines, "tags:", *(f"- {tag}" for tag in _tags(config))])


def _tags(config: RunConfig) -> list[str]:
    return ["trainyard", config.method, *([config.adapter.type] if config.adapter else [])]


def _eval_data(config: RunConfig) -> str:
    if config.data.eval_sha256:
        return f"`{config.data.eval_sha256}`"
    return f"{config.data.eval_fraction:.0%} held out of train" if config.data.eval_fraction else "none"
