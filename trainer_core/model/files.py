"""What a base model's files say before any weight is read: config.json, safetensors there or not. Torch-free."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers import CONFIG_MAPPING, PreTrainedConfig

from trainer_core.contract import CauseCode, ModelSource
from trainer_core.methods_table import ModelKind
from trainer_core.run.faults import Fault

# Positions relative to each other have no end: T5's n_positions is the length it was trained on.
RELATIVE_KEY = "relative_attention_num_buckets"
# Their first positions belong to padding: of 514 rows 512 can be used.
PADDED_POSITIONS = frozenset({"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "roberta-prelayernorm"})
LENGTH_KEYS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
ROPE_KEYS = ("rope_theta", "rope_parameters", "rope_scaling", "rotary_dim", "rotary_pct")


def read_model_config(source: ModelSource) -> dict[str, Any]:
    """config.json as it stands. Raises Fault(MODEL_UNAVAILABLE) without one, or without safetensors in a folder."""
    folder = Path(source.source)
    try:
        config, _ = PreTrainedConfig.get_config_dict(
            source.source, revision=source.revision, local_files_only=folder.is_absolute()
        )
    except (OSError, ValueError) as error:
        raise _unavailable(
            source, f"its config.json cannot be read ({str(error).strip().splitlines()[0][:200]})"
        ) from error
    if "model_type" not in config:
        raise _unavailable(source, "its config.json names no model_type")
    if folder.is_absolute() and not any(folder.glob("*.safetensors")):
        raise _unavailable(source, "its folder holds no safetensors weights")
    return config


def count_stored_parameters(source: ModelSource) -> int | None:
    """Numbers in a folder's safetensors files, read off their headers; null for a hub id.

    Raises Fault(MODEL_UNAVAILABLE) for a file that is cut or is none: its header does not cover it.
    """
    folder = Path(source.source)
    if not folder.is_absolute():
        return None
    total = 0
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, framework="np") as file:
                total += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
        except SafetensorError as error:
            raise _unavailable(source, f"{path.name} is not a whole safetensors file ({error})") from error
    return total


def check_kind(kind: ModelKind, name: str, config: dict[str, Any]) -> None:
    """Raises Fault(CONFIG_INVALID) where the method needs an encoder-decoder and this is none, or the other way."""
    model_type = config["model_type"]
    is_pair = config.get("is_encoder_decoder")
    if is_pair is None:
        is_pair = model_type in CONFIG_MAPPING and CONFIG_MAPPING[model_type]().is_encoder_decoder
    if kind == "seq2seq" and not is_pair:
        message = f"The model {name} ({model_type}) is no encoder-decoder, and seq2seq trains one."
        raise Fault(CauseCode.CONFIG_INVALID, message, hint="Choose T5, BART, Marian or the like.", param="model")
    if kind == "causal" and is_pair:
        message = f"The model {name} ({model_type}) is an encoder-decoder, and the method trains causal models."
        raise Fault(CauseCode.CONFIG_INVALID, message, hint="Use the method seq2seq.", param="method")


def check_fit(config: dict[str, Any], n_tokens: int, longest: int) -> list[str]:
    """Notes on how tokenizer and rows fit the model. Raises Fault(CONFIG_INVALID) where training would fail on it.

    n_tokens is the size of the tokenizer's vocabulary, longest the tokens of the longest sequence.
    """
    text_config = config.get("text_config") or config
    n_rows = text_config.get("vocab_size")
    if n_rows is not None and n_tokens > n_rows:
        raise Fault(
            CauseCode.CONFIG_INVALID,
            f"The tokenizer has {n_tokens} tokens and the model has embeddings for {n_rows}.",
            hint="Register a model whose embeddings were resized for its tokenizer.",
            param="model",
        )
    limit = next((text_config[key] for key in LENGTH_KEYS if text_config.get(key)), None)
    if limit is not None and text_config.get("model_type") in PADDED_POSITIONS:
        limit -= (text_config.get("pad_token_id") or 1) + 1
    if limit is None or longest <= limit or RELATIVE_KEY in text_config:
        return []
    if not any(key in text_config for key in ROPE_KEYS):
        raise Fault(
            CauseCode.CONFIG_INVALID,
            f"The longest row has {longest} tokens and the model has positions for {limit}.",
            hint=f"Set dataset.max_length to {limit} or less.",
            param="dataset.max_length",
        )
    return [f"The longest row has {longest} tokens; the model was made for {limit} and may do worse beyond them."]


def _unavailable(source: ModelSource, what: str) -> Fault:
    return Fault(
        CauseCode.MODEL_UNAVAILABLE,
        f"The model {source.name} cannot be loaded: {what}.",
        hint="A model needs config.json, tokenizer.json and safetensors weights in one folder, or a hub id.",
        param="model",
    )
