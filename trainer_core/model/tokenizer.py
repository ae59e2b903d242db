"""Loads the base model's tokenizer and settles its pad token. Torch-free: preflight encodes whole files without torch.

Padding is masked by position (data/collate.py) and labels come from data/encode.py, so no token id is ever masked for
what it is: an eos that also serves as pad keeps its label where it closes a reply.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from trainer_core.contract import CauseCode, ModelSource
from trainer_core.run.faults import Fault

# Tokens that vocabularies carry for padding without naming one as pad (Llama 3.1, GPT-NeoX, DeepSeek, BERT's kin) ...
KNOWN_PADS = ("<pad>", "[PAD]", "<PAD>", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>", "<｜▁pad▁｜>")
# ... and tokens they reserve for whoever needs one.
RESERVED = re.compile(r"reserved|unused|placeholder|dummy", re.IGNORECASE)
WITHOUT_OFFSETS = ("seq2seq", "classification")
"""Methods that never ask which text a token covers: a slow tokenizer (Marian's is one) will do."""
WITHOUT_EOS = ("classification", "token_classification")
"""Methods that write nothing, and need no end of it."""


@dataclass(frozen=True)
class LoadedTokenizer:
    """A tokenizer fit for training: it has a pad id, and it tells which characters a token covers."""

    tokenizer: Any  # transformers' PreTrainedTokenizerBase, which is untyped here
    pad_id: int
    pad_rule: str
    notes: list[str] = field(default_factory=list)

    @property
    def eos_id(self) -> int | None:
        return None if self.tokenizer.eos_token_id is None else int(self.tokenizer.eos_token_id)

    @property
    def special_tokens(self) -> list[str]:
        """Every token that is parsed out of text as a whole and is marked special, longest first."""
        added = self.tokenizer.added_tokens_decoder.values()
        named = self.tokenizer.all_special_tokens
        return sorted({*(token.content for token in added if token.special), *named}, key=len, reverse=True)


def load_tokenizer(source: ModelSource, method: str = "sft") -> LoadedTokenizer:
    """Raises Fault(MODEL_UNAVAILABLE) where there is no folder, no tokenizer in it, or one without token offsets."""
    # Words that come one by one must look to a byte-level vocabulary as they do inside a sentence.
    tokenizer = _load(source, **({"add_prefix_space": True} if method == "token_classification" else {}))
    if not tokenizer.is_fast and method not in WITHOUT_OFFSETS:
        raise Fault(
            CauseCode.MODEL_UNAVAILABLE,
            f"The tokenizer of {source.name} ({type(tokenizer).__name__}) cannot tell which text a token covers.",
            hint="Convert it to a tokenizer.json (a fast tokenizer); the loss mask is computed from token offsets.",
            param="model",
        )
    pad_id, pad_rule = _settle_pad(tokenizer)
    notes = [pad_rule]
    if tokenizer.eos_token_id is None and method not in WITHOUT_EOS:
        notes.append("The tokenizer names no eos token: nothing closes a text but what the chat template writes.")
    return LoadedTokenizer(tokenizer=tokenizer, pad_id=pad_id, pad_rule=pad_rule, notes=notes)


def _load(source: ModelSource, **options: Any) -> Any:
    if Path(source.source).is_absolute() and not Path(source.source).is_dir():
        raise Fault(
            CauseCode.MODEL_UNAVAILABLE,
            f"The folder of model {source.name} does not exist on this machine.",
            hint="Register the model again with a folder that every node sees, or with a hub id.",
            param="model",
        )
    try:
        return AutoTokenizer.from_pretrained(
            source.source,
            revision=source.revision,
            trust_remote_code=source.trust_remote_code,
            local_files_only=Path(source.source).is_absolute(),
            **options,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
        # transformers has no error of its own for this: what is missing or broken decides which of these it is.
        raise Fault(
            CauseCode.MODEL_UNAVAILABLE,
            f"The tokenizer of model {source.name} could not be loaded: {_first_line(error)}",
            hint="The model needs config.json and tokenizer.json (or its older forms) beside its weights.",
            param="model",
        ) from error


def _settle_pad(tokenizer: Any) -> tuple[int, str]:
    """The pad id and the sentence that explains it. Names the pad token on the tokenizer, so that it is saved too."""
    if tokenizer.pad_token is not None:
        same = tokenizer.pad_token == tokenizer.eos_token
        also = (
            ", which is eos too: padding is masked by position, so the eos of a reply keeps its label" if same else ""
        )
        rule = f"Pad token: the tokenizer's own {tokenizer.pad_token}{also}."
    elif spare := _spare_token(tokenizer):
        tokenizer.pad_token = spare
        rule = f"Pad token: none was set; the spare token {spare} serves."
    elif tokenizer.eos_token is not None:
        tokenizer.pad_token = tokenizer.eos_token
        rule = (
            f"Pad token: none was set and the vocabulary has no spare one; eos {tokenizer.eos_token} serves. "
            "Padding is masked by position, so the eos of a reply keeps its label."
        )
    else:
        return 0, "Pad token: none was set and there is no eos; id 0 fills up, masked by position."
    return int(tokenizer.convert_tokens_to_ids(tokenizer.pad_token)), rule


def _spare_token(tokenizer: Any) -> str | None:
    """A token that no text uses: one known to be for padding, else the first reserved one by id."""
    in_use = set(tokenizer.all_special_tokens)
    added = tokenizer.added_tokens_decoder
    free = [added[id_].content for id_ in sorted(added) if added[id_].special and added[id_].content not in in_use]
    known = [token for token in KNOWN_PADS if token in free]
    return next(iter(known or [token for token in free if RESERVED.search(token)]), None)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
