"""Every module that an adapter names must be one of the model's: PEFT complains only where none of them is."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from transformers import PreTrainedModel

from trainer_core.contract import CauseCode
from trainer_core.contract.adapters import Ia3Adapter, LoraAdapter, PeftAdapter
from trainer_core.run.faults import Fault

FIELDS = ("target_modules", "feedforward_modules", "modules_to_save")


def check_all_names(model: PreTrainedModel, adapter: PeftAdapter) -> None:
    """Raises Fault(config_invalid) with the nearest names for the first one that is no module, or no parameter."""
    if not isinstance(adapter, LoraAdapter | Ia3Adapter):
        return
    modules = [name for name, _ in model.named_modules() if name]
    for field in FIELDS:
        _check(modules, f"adapter.{field}", getattr(adapter, field, None), "module")
    if isinstance(adapter, LoraAdapter):
        parameters = [name for name, _ in model.named_parameters()]
        _check(parameters, "adapter.target_parameters", adapter.target_parameters, "parameter")
        if isinstance(adapter.trainable_token_indices, dict):
            _check(modules, "adapter.trainable_token_indices", adapter.trainable_token_indices, "module")
        _check_tokens(model, adapter)
        _check_tied(model, adapter)


def _check(names: list[str], param: str, wanted: Iterable[str] | str | None, kind: str) -> None:
    """A name is a module's full name or its end, as PEFT matches them; a text is a pattern for the whole name."""
    if wanted is None or wanted == "all-linear":
        return
    if isinstance(wanted, str):
        if not any(re.fullmatch(wanted, name) for name in names):
            raise _nothing(param, wanted, kind, [])
        return
    for target in wanted:
        if any(name == target or name.endswith(f".{target}") for name in names):
            continue
        ends = sorted({name.rsplit(".", 1)[-1] for name in names if not name.rsplit(".", 1)[-1].isdigit()})
        raise _nothing(param, target, kind, difflib.get_close_matches(target, ends, n=3, cutoff=0.5) or ends[:20])


def _nothing(param: str, asked: str, kind: str, near: list[str]) -> Fault:
    hint = f"Nearest names: {', '.join(near)}." if near else "The pattern must match a whole name, such as .*q_proj."
    return Fault(
        CauseCode.CONFIG_INVALID,
        f"The model has no {kind} named {asked!r}.",
        hint=hint,
        param=param,
        details={"asked": asked, "nearest": near},
    )


def _check_tokens(model: PreTrainedModel, adapter: LoraAdapter) -> None:
    n_rows = int(model.config.get_text_config().vocab_size)
    wanted = adapter.trainable_token_indices or []
    for ids in wanted.values() if isinstance(wanted, dict) else [wanted]:
        if ids and max(ids) >= n_rows:
            raise Fault(
                CauseCode.CONFIG_INVALID,
                f"The model has embeddings for {n_rows} tokens and {max(ids)} is to be trained.",
                hint=f"Name ids from 0 to {n_rows - 1}.",
                param="adapter.trainable_token_indices",
            )


def _check_tied(model: PreTrainedModel, adapter: LoraAdapter) -> None:
    """PEFT trains a copy of one of two tied matrices and says so in the log alone; a merge then loses half of it."""
    output = model.get_output_embeddings()
    is_tied = output is not None and output.weight is model.get_input_embeddings().weight
    if not is_tied or adapter.ensure_weight_tying:
        return
    both = {name for name, one in model.named_modules() if one in (output, model.get_input_embeddings())}
    for field in ("target_modules", "modules_to_save"):
        names = getattr(adapter, field) or []
        for one in names if isinstance(names, list) else []:
            if any(name == one or name.endswith(f".{one}") for name in both):
                raise Fault(
                    CauseCode.CONFIG_INVALID,
                    f"The model's input and output embeddings are one matrix, and {one} alone would be trained.",
                    hint="Set ensure_weight_tying to true, or leave it out.",
                    param=f"adapter.{field}",
                )
