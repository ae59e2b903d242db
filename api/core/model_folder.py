"""What a folder of model files holds, read from its config.json and the headers of its weight files.

No model library is imported and no weight is loaded. Raises Invalid for what could not be trained from.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

from api.core.errors import Invalid

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
TOKENIZERS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "spiece.model",
    "vocab.json",
    "vocab.txt",
)
MAX_JSON_BYTES = 64 * 1024**2
SHOWN = (
    "model_type",
    "architectures",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "tie_word_embeddings",
)


def look_at(folder: Path, *, allow_remote_code: bool) -> dict[str, Any]:
    """What is worth knowing of the model: its architecture, parameters by dtype, bytes of weights."""
    if not folder.is_dir():
        raise _refused(f"there is no folder {folder} on this machine")
    config = _json(folder / CONFIG, "a model folder holds the config.json that save_pretrained writes")
    if not isinstance(config.get("model_type"), str):
        raise _refused(f"{CONFIG} names no model_type")
    if "auto_map" in config and not allow_remote_code:
        raise _refused(f"{CONFIG} asks for code of its own (auto_map), which the setting allow_remote_code forbids")
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise _refused("it holds no tokenizer files; save the tokenizer beside the model with save_pretrained")
    files = _weight_files(folder)
    by_dtype: Counter[str] = Counter()
    for file in files:
        by_dtype.update(_parameters(file))
    text_config = config.get("text_config")
    shown = {**(text_config if isinstance(text_config, dict) else {}), **config}
    return {
        **{key: shown[key] for key in SHOWN if key in shown},
        "dtype": config.get("dtype", config.get("torch_dtype")),
        "n_parameters": sum(by_dtype.values()),
        "parameters_by_dtype": dict(by_dtype),
        "size_bytes": sum(file.stat().st_size for file in files),
        "has_chat_template": _has_chat_template(folder),
        "needs_remote_code": "auto_map" in config,
    }


def _weight_files(folder: Path) -> list[Path]:
    if (folder / INDEX).is_file():
        index = _json(folder / INDEX, "the index of the weights is JSON")
        weight_map = index.get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise _refused(f"{INDEX} has no weight_map")
        names = sorted({str(name) for name in weight_map.values()})
        if outside := [name for name in names if os.path.basename(name) != name]:
            raise _refused(f"{INDEX} names a file outside the folder: {outside[0][:60]!r}")
        if missing := [name for name in names if not (folder / name).is_file()]:
            raise _refused(f"{missing[0]} is missing ({len(missing)} of the {len(names)} weight files in {INDEX})")
        return [folder / name for name in names]
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if pickles := [path.name for pattern in PICKLES for path in folder.glob(pattern)]:
        raise _refused(
            f"its weights are pickles only ({pickles[0]}), which can run any code when they are loaded; "
            "convert them: save_pretrained(folder, safe_serialization=True)"
        )
    raise _refused(f"it holds no weights; expected {WEIGHTS} or {INDEX}")


def _parameters(file: Path) -> Counter[str]:
    """Parameters by dtype, from the header of a safetensors file (an 8-byte length, then JSON)."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= min(size - 8, MAX_JSON_BYTES):
            raise _refused(f"{file.name} is no safetensors file, or it is cut short ({size} bytes)")
        try:
            header = json.loads(stream.read(length))
            tensors = [tensor for name, tensor in header.items() if name != "__metadata__"]
            end = max((tensor["data_offsets"][1] for tensor in tensors), default=0)
            counts: Counter[str] = Counter()
            for tensor in tensors:
                counts[str(tensor["dtype"])] += math.prod(tensor["shape"])
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise _refused(f"the header of {file.name} cannot be read") from error
    if size != 8 + length + end:
        raise _refused(f"{file.name} has {size} bytes, its header promises {8 + length + end}: it is not whole")
    return counts


def _has_chat_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file():
        return True
    path = folder / "tokenizer_config.json"
    return path.is_file() and bool(_json(path, "the tokenizer's configuration is JSON").get("chat_template"))


def _json(path: Path, expected: str) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            value = json.loads(stream.read(MAX_JSON_BYTES))
    except FileNotFoundError as error:
        raise _refused(f"it holds no {path.name}; {expected}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(f"{path.name} cannot be read; {expected}") from error
    if not isinstance(value, dict):
        raise _refused(f"{path.name} is no JSON object; {expected}")
    return value


def _refused(why: str) -> Invalid:
    return Invalid(f"no model can be trained from this folder: {why}", code="model_unusable", param="source")
