"""Loads what an engine answers with: the base model once, and on it or beside it what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

from trainer_core.checkpoints.manifests import read_manifest, verify
from trainer_core.contract import CauseCode, Manifest
from trainer_core.model.files import LENGTH_KEYS
from trainer_core.model.quantized import bits_and_bytes
from trainer_core.run.faults import Fault
from trainer_core.serve.order import ServeOrder, Variant

CLASSES = {"causal": AutoModelForCausalLM, "seq2seq": AutoModelForSeq2SeqLM}
ADAPTER_CONFIG = "adapter_config.json"
# A second copy of the weights is loaded only where this many times its size is free.
ROOM = 1.25


@dataclass
class Models:
    """The models by variant; `tuned` and `base` are one model where the checkpoint is an adapter."""

    tokenizer: Any
    by_variant: dict[Variant, Any]
    is_one: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def variants(self) -> list[Variant]:
        return [*self.by_variant]

    @property
    def context_length(self) -> int | None:
        """Positions the model has; null where they have no end, as T5's."""
        config = next(iter(self.by_variant.values())).config.get_text_config()
        if getattr(config, "relative_attention_num_buckets", None):
            return None
        found = (getattr(config, key, None) for key in LENGTH_KEYS)
        return next((int(length) for length in found if length), None)

    @contextmanager
    def using(self, variant: Variant) -> Iterator[Any]:
        """The model that answers as `variant`: the adapter is off while the base is asked for."""
        model = self.by_variant[variant]
        if self.is_one and variant == "base":
            with model.disable_adapter():
                yield model
        else:
            yield model


def load(order: ServeOrder) -> Models:
    """Raises Fault where model or checkpoint cannot be used."""
    if order.checkpoint is None:
        return Models(_tokenizer(order, order.model.source), {"base": _load(order, order.model.source)})
    manifest = read_manifest(order.checkpoint, order.manifest_sha256)
    verify(order.checkpoint, manifest)
    tokenizer = _tokenizer(order, _tokenizer_source(order, order.checkpoint))
    if (order.checkpoint / ADAPTER_CONFIG).is_file():
        base = _load(order, order.model.source)
        try:
            adapted: Any = PeftModel.from_pretrained(base, order.checkpoint)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise _broken(f"The adapter of the checkpoint does not fit its base model: {_line(error)}") from error
        adapted.eval()
        return Models(tokenizer, {"tuned": adapted, "base": adapted}, is_one=True)
    return _whole(order, order.checkpoint, manifest, tokenizer)


def _whole(order: ServeOrder, checkpoint: Path, manifest: Manifest, tokenizer: Any) -> Models:
    if not any(checkpoint.glob("*.safetensors")):
        what = f"ZeRO-{manifest.zero_stage} shards" if manifest.zero_stage else "no weights"
        raise _broken(f"The checkpoint holds {what} and no gathered weights; export it as fp32 to use it.")
    tuned = _load(order, str(checkpoint))
    n_bytes = sum(parameter.numel() * parameter.element_size() for parameter in tuned.parameters())
    free = _free_bytes(order.device)
    if free is not None and free < ROOM * n_bytes:
        note = f"The base model is not loaded beside the checkpoint: {free:,} bytes are free and it needs {n_bytes:,}."
        return Models(tokenizer, {"tuned": tuned}, notes=[note])
    return Models(tokenizer, {"tuned": tuned, "base": _load(order, order.model.source)})


def _tokenizer_source(order: ServeOrder, checkpoint: Path) -> str:
    has_own = (checkpoint / "tokenizer_config.json").is_file()
    return str(checkpoint) if has_own else order.model.source


def _tokenizer(order: ServeOrder, source: str) -> Any:
    try:
        return AutoTokenizer.from_pretrained(source, **_where(order, source))
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"The tokenizer of {order.model.name} cannot be loaded: {_line(error)}"
        raise Fault(CauseCode.MODEL_UNAVAILABLE, message, param="model") from error


def _load(order: ServeOrder, source: str) -> Any:
    options = _where(order, source)
    # In few bits where the run had it so; the CPU computes in float32, which every checkpoint was proved in.
    if order.quantization is not None and order.device == "cuda":
        options |= {"quantization_config": bits_and_bytes(order.quantization, torch.bfloat16), "device_map": {"": 0}}
    options["dtype"] = _dtype(order)
    try:
        model = CLASSES[order.kind].from_pretrained(source, use_safetensors=True, **options)
    except (OSError, ValueError, KeyError) as error:
        is_base = source == order.model.source
        code = CauseCode.MODEL_UNAVAILABLE if is_base else CauseCode.CHECKPOINT_INVALID
        what = f"The base model {order.model.name}" if is_base else "The checkpoint"
        raise Fault(code, f"{what} cannot be loaded: {_line(error)}", param="model") from error
    return (model if "device_map" in options else model.to(order.device)).eval()


def _dtype(order: ServeOrder) -> Any:
    if order.device == "cpu":
        return torch.float32
    return "auto" if order.model.dtype == "auto" else getattr(torch, order.model.dtype)


def _where(order: ServeOrder, source: str) -> dict[str, Any]:
    return {
        "revision": order.model.revision if source == order.model.source else None,
        "local_files_only": Path(source).is_absolute(),
        "trust_remote_code": order.model.trust_remote_code,
    }


def _free_bytes(device: str) -> int | None:
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _broken(message: str) -> Fault:
    return Fault(CauseCode.CHECKPOINT_INVALID, message, param="checkpoint")


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
