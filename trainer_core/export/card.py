"""The model card of an export: what it holds, how it was proved, and where every part of it came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainer_core.contract import Manifest
from trainer_core.export.order import ExportOrder
from trainer_core.methods_table import METHODS
from trainer_core.outputs.write import resolved_config

WHAT = {
    "adapter": "The adapter",
    "merged": "The base model with the adapter merged into its weights",
    "fp32": "Float32 weights put together from ZeRO's shards",
    "full": "The weights",
}
CARD = """---
{front_matter}
---

# {name}

{what} of checkpoint {step} of a run of **{model}**, exported by Trainyard without optimizer states.

| | |
|---|---|
| Base model | {model}{revision} |
| Method | {method} |
| Weights | {kind}, {dtype} |
| Train data, sha256 | `{data}` |
| Configuration, sha256 | `{config_sha256}` |
| Step | {step} of {total} |
| Saved by | {world_size} process(es), {strategy} |

## Figures at this step

{metrics}

## Proof

Logits on {n_prompts} fixed prompts; each difference was at most what rounding allows.

{proof}

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


def export_card(
    order: ExportOrder, manifest: Manifest, proof: Mapping[str, Mapping[str, float]], dtype: str, n_prompts: int
) -> str:
    """The text of README.md."""
    config = order.config
    stage = "" if manifest.zero_stage is None else f" ZeRO-{manifest.zero_stage}"
    return CARD.format(
        front_matter=_front_matter(order, manifest),
        name=config.job_name,
        what=WHAT[order.kind],
        model=config.model.name,
        revision=f" @ {config.model.revision}" if config.model.revision else "",
        method=config.method,
        kind=order.kind,
        dtype=dtype,
        data=manifest.data_sha256 or "not recorded",
        config_sha256=manifest.config_sha256 or "not recorded",
        step=manifest.step,
        total=manifest.total_steps,
        world_size=manifest.world_size,
        strategy=f"{manifest.strategy}{stage}",
        metrics=_listed(manifest.metrics),
        n_prompts=n_prompts,
        proof="\n".join(
            f"- {name}: {one['difference']:.3g} (allowed {one['allowed']:.3g})" for name, one in proof.items()
        ),
        recipe=_recipe(order, manifest),
        config=json.dumps(resolved_config(config), indent=2, sort_keys=True, allow_nan=False),
        versions=_listed(manifest.versions),
    )


def _front_matter(order: ExportOrder, manifest: Manifest) -> str:
    """YAML by hand: JSON strings are YAML strings, so no name can break out of its line."""
    is_adapter = holds_adapter(order, manifest)
    method = METHODS[order.config.method]
    lines = [f"library_name: {'peft' if is_adapter else 'transformers'}", f"pipeline_tag: {method.pipeline}"]
    if not order.config.model.source.startswith("/"):
        lines.append(f"base_model: {json.dumps(order.config.model.source)}")
    return "\n".join([*lines, "tags:", "- trainyard", f"- {order.config.method}"])


def holds_adapter(order: ExportOrder, manifest: Manifest) -> bool:
    """Whether the export is an adapter, to be put on its base model."""
    return manifest.adapter is not None and order.kind != "merged"


def _recipe(order: ExportOrder, manifest: Manifest) -> str:
    method, last = METHODS[order.config.method], 'tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")'
    name = method.auto_class
    if not holds_adapter(order, manifest):
        model = f'model = {name}.from_pretrained("THIS_FOLDER")'
        return "\n".join([f"from transformers import {name}, AutoTokenizer", "", model, last])
    lines = ["from peft import PeftModel", f"from transformers import AutoConfig, {name}, AutoTokenizer", ""]
    options = ""
    if method.has_labels:
        lines.append('config = AutoConfig.from_pretrained("THIS_FOLDER")')
        options = ", config=config, ignore_mismatched_sizes=True"
    lines.append(f'base = {name}.from_pretrained("BASE_MODEL"{options})  # {order.config.model.name}')
    return "\n".join([*lines, 'model = PeftModel.from_pretrained(base, "THIS_FOLDER")', last])


def _listed(values: Mapping[str, Any]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in sorted(values.items())) or "none"
