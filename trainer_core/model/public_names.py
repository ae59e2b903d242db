"""What a base model is called outside this machine, put where the libraries write the folder it was loaded from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainer_core.contract import ModelSource

ADAPTER_CONFIG = "adapter_config.json"
RECIPE = """# Adapter for {name}

```python
from peft import PeftModel
from transformers import {auto_class}, AutoTokenizer

base = {auto_class}.from_pretrained("BASE")  # {name}
{seed}model = PeftModel.from_pretrained(base, "THIS_FOLDER")
tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")
```
"""


def public_name(model: ModelSource) -> str:
    """Its hub id, or the name it is registered under; never a folder of this machine."""
    return model.name if Path(model.source).is_absolute() else model.source


def _seed_line(config: dict[str, Any], seed: int) -> str:
    """PiSSA by iterations takes random directions out of the base, and PEFT takes them anew when it loads."""
    if not str(config.get("init_lora_weights")).startswith("pissa_niter"):
        return ""
    return f"import torch\n\ntorch.manual_seed({seed})  # pissa_niter starts from random directions\n"


def name_the_base(folder: Path, model: ModelSource, auto_class: str, seed: int = 42) -> None:
    """Gives a saved adapter the base model's public name, and a README that loads in place of PEFT's empty card."""
    config = folder / ADAPTER_CONFIG
    if not config.is_file():
        return
    value = json.loads(config.read_text(encoding="utf-8"))
    value["base_model_name_or_path"] = public_name(model)
    if value.get("tokenizer_name_or_path"):  # prompt tuning's, where its text was made tokens
        value["tokenizer_name_or_path"] = public_name(model)
    config.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    readme = RECIPE.format(name=public_name(model), auto_class=auto_class, seed=_seed_line(value, seed))
    (folder / "README.md").write_text(readme, encoding="utf-8")
