"""The files of an export beside its weights: tokenizer, clean configs, and no path of this machine in any of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from trainer_core.contract import CauseCode
from trainer_core.export.order import ExportOrder
from trainer_core.model.public_names import public_name
from trainer_core.run.faults import Fault

TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("chat_template.jinja", "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model"),
    *("spiece.model", "sentencepiece.bpe.model", "source.spm", "target.spm"),
)
NAMES_A_FOLDER = ("name_or_path", "_name_or_path")
TEXTS = (".json", ".md", ".txt", ".jinja")


def copy_tokenizer(order: ExportOrder, output: Path) -> None:
    """The checkpoint's own tokenizer, else the base model's."""
    found = [name for name in TOKENIZER_FILES if (order.checkpoint / name).is_file()]
    for name in found:
        shutil.copyfile(order.checkpoint / name, output / name)
    if not found:
        load_tokenizer(order, order.config.model.source).save_pretrained(output)


def load_tokenizer(order: ExportOrder, source: str) -> Any:
    is_base = source == order.config.model.source
    return AutoTokenizer.from_pretrained(
        source,
        revision=order.config.model.revision if is_base else None,
        local_files_only=Path(source).is_absolute(),
        trust_remote_code=order.config.model.trust_remote_code,
    )


def clean_configs(order: ExportOrder, output: Path) -> None:
    """Names in place of folders, wherever the libraries write where something was loaded from."""
    for path in output.glob("*.json"):
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict) or path.name == "tokenizer.json":
            continue
        kept = {name: item for name, item in value.items() if name not in NAMES_A_FOLDER}
        if "base_model_name_or_path" in kept:
            kept["base_model_name_or_path"] = public_name(order.config.model)
        if kept.get("tokenizer_name_or_path"):
            kept["tokenizer_name_or_path"] = public_name(order.config.model)
        if kept != value:
            path.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def refuse_paths(output: Path, paths: Iterable[str]) -> None:
    """Raises Fault(internal) where a text file of the export tells of a folder here."""
    absolute = [path for path in paths if Path(path).is_absolute()]
    for file in sorted(output.rglob("*")):
        if file.suffix not in TEXTS or file.name == "tokenizer.json":
            continue
        text = file.read_text(encoding="utf-8")
        if any(path in text for path in absolute):
            raise Fault(CauseCode.INTERNAL, f"{file.name} of the export names a folder of this machine.")
