"""Manifests: what makes a checkpoint folder complete, and the proof that it still is what was saved.

Torch-free. A folder with a manifest that `verify` accepts holds exactly the files that were saved, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainer_core.contract import (
    MANIFEST_NAME,
    AnyAdapter,
    CauseCode,
    LoraAdapter,
    Manifest,
    ManifestFile,
    RunConfig,
)
from trainer_core.contract.method_options import SftOptions
from trainer_core.run.faults import Fault

CHUNK_BYTES = 8 * 1024 * 1024
# hashlib releases the interpreter's lock; four readers keep a solid-state disk busy.
N_HASHERS = 4

FIRST_LORA_FIELDS = frozenset(
    {
        *("type", "r", "lora_alpha", "lora_dropout", "target_modules", "exclude_modules", "bias", "use_rslora"),
        *("use_dora", "modules_to_save", "layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern"),
        "init_lora_weights",
    }
)

# Training options that change what is reported, how long the run is or how it is computed, but not the curve itself.
NOT_OF_THE_CURVE = frozenset(
    {
        "activation_checkpointing",
        "activation_checkpointing_kwargs",
        "dataloader_num_workers",
        "dataloader_persistent_workers",
        "dataloader_pin_memory",
        "dataloader_prefetch_factor",
        "disable_tqdm",
        "eval_accumulation_steps",
        "eval_delay",
        "eval_on_start",
        "eval_steps",
        "eval_strategy",
        "gradient_accumulation_steps",
        "gradient_checkpointing",
        "gradient_checkpointing_kwargs",
        "log_level",
        "logging_first_step",
        "logging_steps",
        "logging_strategy",
        "max_steps",
        "num_train_epochs",
        "per_device_eval_batch_size",
        "per_device_train_batch_size",
        "report_to",
        "run_name",
        "save_steps",
        "save_strategy",
        "save_total_limit",
    }
)


def describe_files(folder: Path) -> list[ManifestFile]:
    """Size and sha256 of every file below folder, sorted by path; each is flushed to the disk on the way."""
    paths = sorted(_files(folder))
    with ThreadPoolExecutor(N_HASHERS) as pool:
        digests = pool.map(_sync_and_digest, paths)
        return [
            ManifestFile(path=path.relative_to(folder).as_posix(), size_bytes=path.stat().st_size, sha256=digest)
            for path, digest in zip(paths, digests, strict=True)
        ]


def write_manifest(folder: Path, manifest: Manifest) -> str:
    """Write manifest.json, flushed to the disk with the folder; returns its sha256."""
    content = manifest.model_dump_json(indent=2).encode()
    with open(folder / MANIFEST_NAME, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)
    return hashlib.sha256(content).hexdigest()


def read_manifest(folder: Path, expected_sha256: str | None = None) -> Manifest:
    """Raises Fault(checkpoint_invalid) when there is none, it is not the expected one, or it is no manifest."""
    try:
        content = (folder / MANIFEST_NAME).read_bytes()
    except OSError as error:
        raise _invalid(f"{folder.name} has no readable {MANIFEST_NAME}, so it is not complete") from error
    found = hashlib.sha256(content).hexdigest()
    if expected_sha256 is not None and found != expected_sha256:
        raise _invalid(f"{MANIFEST_NAME} of {folder.name} has sha256 {found}, recorded was {expected_sha256}")
    try:
        return Manifest.model_validate_json(content)
    except ValidationError as error:
        raise _invalid(f"{MANIFEST_NAME} of {folder.name} is not a manifest: {error.errors()[0]['msg']}") from error


def verify(folder: Path, manifest: Manifest) -> None:
    """Raises Fault(checkpoint_invalid) unless folder holds exactly the manifest's files with their digests."""
    listed = {file.path: file for file in manifest.files}
    present = {path.relative_to(folder).as_posix(): path for path in _files(folder)}
    links = [name for name, path in present.items() if path.is_symlink()]
    if links:
        raise _invalid(f"{folder.name} holds a symbolic link: {links[0]}")
    if missing := sorted(listed.keys() - present.keys()):
        raise _invalid(f"{folder.name} lacks {missing[0]} ({len(missing)} files in all)")
    if foreign := sorted(present.keys() - listed.keys()):
        raise _invalid(f"{folder.name} holds {foreign[0]}, which its manifest does not list")
    for name, path in present.items():
        if path.stat().st_size != listed[name].size_bytes:
            raise _invalid(f"{name} has {path.stat().st_size} bytes, saved were {listed[name].size_bytes}")
    with ThreadPoolExecutor(N_HASHERS) as pool:
        for name, digest in zip(present, pool.map(_digest, present.values()), strict=True):
            if digest != listed[name].sha256:
                raise _invalid(f"{name} has another content than was saved (sha256 {digest})")


def curve_digest(config: RunConfig, global_batch_size: int) -> str:
    """Digest of all that shapes the losses step by step: equal digests mean that a full resume continues one curve."""
    training = {name: value for name, value in config.training.items() if name not in NOT_OF_THE_CURVE}
    data = config.data.model_dump(mode="json", exclude={"train", "eval", "eval_sha256"})
    shape: dict[str, Any] = {
        "model": config.model.model_dump(mode="json", exclude={"source"}),
        "adapter": _adapter_shape(config.adapter),
        "data": data,
        "training": training,
        "global_batch_size": global_batch_size,
        "seed": config.seed,
    }
    if config.quantization is not None:
        shape["quantization"] = config.quantization.model_dump(mode="json")
    # Plain sft has the digests of before there were other methods, and options.
    if config.method != "sft" or config.options != SftOptions():
        shape |= {"method": config.method, "options": config.options.model_dump(mode="json")}
    return hashlib.sha256(json.dumps(shape, sort_keys=True, default=str).encode()).hexdigest()


def _adapter_shape(adapter: AnyAdapter | None) -> dict[str, Any] | None:
    """Fields that LoRA did not have at first are left out at their defaults: older checkpoints keep their digest."""
    if adapter is None:
        return None
    fields = adapter.model_dump(mode="json")
    added = type(adapter).model_fields.keys() - FIRST_LORA_FIELDS if isinstance(adapter, LoraAdapter) else set()
    return {
        name: value
        for name, value in fields.items()
        if name not in added or getattr(adapter, name) != type(adapter).model_fields[name].default
    }


def sync_folder(folder: Path) -> None:
    """Flush a folder's own entries (new names, renames) to the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _files(folder: Path) -> Iterator[Path]:
    """Every file and link but the manifest; folders behind links are not entered."""
    for root, folders, names in os.walk(folder):
        inside = Path(root)
        links = [name for name in folders if (inside / name).is_symlink()]
        for name in [*names, *links]:
            if inside / name != folder / MANIFEST_NAME:
                yield inside / name


def _sync_and_digest(path: Path) -> str:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return _digest(path)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _invalid(message: str) -> Fault:
    return Fault(
        CauseCode.CHECKPOINT_INVALID,
        message,
        hint="Choose another checkpoint of the job, or start it anew.",
        param="resume.checkpoint",
    )
