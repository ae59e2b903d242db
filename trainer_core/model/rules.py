"""What does not go together: adapters, quantised bases, methods, strategies, and the model's own modules.

Said at submit by the service, and again by the trainer before it loads weights. Each rule names what the libraries
would do otherwise. Pure and torch-free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainer_core.contract import CauseCode, RunConfig
from trainer_core.contract.adapters import (
    AnyAdapter,
    FreezeAdapter,
    Ia3Adapter,
    LoraAdapter,
    PrefixTuningAdapter,
    PromptAdapter,
)
from trainer_core.contract.method_options import MethodBlocks
from trainer_core.contract.quantization import Quantization
from trainer_core.memory.modules import all_names, read_modules
from trainer_core.memory.shape import Shape, read_shape
from trainer_core.memory.trained import IA3_DEFAULTS
from trainer_core.problems import Problem, nearest
from trainer_core.run.faults import Fault
from trainer_core.zero.owners import stage_of, strategy_of

LANGUAGE_METHODS = ("sft", "pretrain")


@dataclass(frozen=True)
class Setting:
    """The rest of the job, as far as it decides what goes together. `model_config` is config.json."""

    method: str
    training: Mapping[str, Any]
    model_config: Mapping[str, Any]
    zero_stage: int | None
    """Null without DeepSpeed."""
    has_own_optimizer: bool = False
    """In the job's DeepSpeed block."""
    packs: bool = False
    """Rows are put together, told apart by their positions."""

    @property
    def recomputes(self) -> bool:
        return bool(self.training.get("gradient_checkpointing") or self.training.get("activation_checkpointing"))


def check(adapter: AnyAdapter | None, quantization: Quantization | None, setting: Setting) -> list[Problem]:
    """Every reason why the two cannot run in this setting."""
    problems = list(_quantised(adapter, quantization, setting))
    if isinstance(adapter, PromptAdapter):
        problems += _prompts(adapter, setting)
    if isinstance(adapter, LoraAdapter) and adapter.use_dora and quantization and quantization.bits == "int8":
        message = "DoRA reads the base's weights at every pass, and an int8 layer gives its scales up at the first one"
        problems.append(Problem("adapter.use_dora", message, "conflict", "Use nf4 or fp4, or leave use_dora out."))
    if isinstance(adapter, LoraAdapter):
        problems += _lora(adapter, quantization is not None or is_quantised(setting.model_config), setting)
    if isinstance(adapter, Ia3Adapter) and adapter.target_modules is None:
        problems += _ia3_defaults(setting)
    shape = read_shape(setting.model_config)
    if adapter is not None and shape is not None:
        problems += _names(adapter, setting)
        problems += _numbers(adapter, shape)
    return problems


def needs_whole_weights(adapter: AnyAdapter | None, *, on_quantised: bool) -> bool:
    """Whether ZeRO-3, which leaves no rank a whole weight, is refused: `auto` and the memory ladder stay above it."""
    if on_quantised or isinstance(adapter, PromptAdapter):
        return True
    return isinstance(adapter, LoraAdapter) and bool(
        _reads_base(adapter)
        or adapter.layer_replication
        or adapter.target_parameters
        or adapter.trainable_token_indices
    )


def _reads_base(adapter: LoraAdapter) -> bool:
    return adapter.changes_base or adapter.init_lora_weights in ("orthogonal", "mica")


def is_quantised(model_config: Mapping[str, Any]) -> bool:
    """Whether the base's own files hold quantised weights."""
    return bool(model_config.get("quantization_config"))


def packs_rows(job: MethodBlocks) -> bool:
    """Whether rows are put together into one, told apart by their positions."""
    if job.method == "pretrain":
        return job.pretrain is not None and job.pretrain.document_boundaries == "mask"
    return job.method == "sft" and job.sft is not None and job.sft.packing


def check_run(config: RunConfig, model_config: Mapping[str, Any]) -> None:
    """The same for a run's own config. Raises Fault(config_invalid) with the first problem."""
    is_deepspeed = strategy_of(config.parallel) == "deepspeed"
    setting = Setting(
        method=config.method,
        training=config.training,
        model_config=model_config,
        zero_stage=stage_of(config.parallel) if is_deepspeed else None,
        has_own_optimizer="optimizer" in (config.parallel.deepspeed or {}),
        packs=packs_rows(config),
    )
    for problem in check(config.adapter, config.quantization, setting)[:1]:
        found = f" (found {problem.found})" if problem.found else ""
        message = f"{problem.param}: {problem.message}{found}."
        raise Fault(CauseCode.CONFIG_INVALID, message, hint=problem.hint, param=problem.param)


# Quantised bases ---------------------------------------------------------------------------------------------------


def _quantised(adapter: AnyAdapter | None, quantization: Quantization | None, setting: Setting) -> Iterator[Problem]:
    stored = is_quantised(setting.model_config)
    if quantization is None and not stored:
        return
    param = "quantization" if quantization is not None else "model"
    if quantization is not None and stored:
        kind = dict(setting.model_config["quantization_config"]).get("quant_method", "some way")
        message = f"the model's files are quantised already ({kind}), and cannot be quantised once more"
        yield Problem(param, message, "conflict", "Leave quantization out, or register the model before it was.")
    if adapter is None or isinstance(adapter, FreezeAdapter):
        what = "every weight" if adapter is None else "the model's own blocks"
        message = f"quantised weights have no gradient, and the job trains {what}"
        yield Problem(param, message, "conflict", "Train an adapter, such as {type: lora}, or an unquantised base.")
    if setting.zero_stage == 3:
        message = "ZeRO-3 cuts weights into flat shards, and a quantised layer with its scales is one piece"
        yield Problem(param, message, "conflict", "Use ddp, or ZeRO 0 to 2: a quantised base is small.")


# Adapters ----------------------------------------------------------------------------------------------------------


def _prompts(adapter: PromptAdapter, setting: Setting) -> Iterator[Problem]:
    if setting.method not in LANGUAGE_METHODS:
        message = (
            f"{adapter.type} puts positions before every row, and {setting.method} reads its figures off the rows' own"
        )
        yield Problem("adapter.type", message, "conflict", "Use lora or ia3, or the method sft.")
    if setting.zero_stage == 3:
        message = "ZeRO-3 cuts the learnt positions too, and PEFT reads them on one rank alone when it saves"
        yield Problem("adapter.type", message, "conflict", "Use ddp, or ZeRO 0 to 2: so few numbers need no cutting.")
    if setting.packs:
        message = "PEFT leaves out the positions that keep packed rows apart, so one row would see the other"
        yield Problem("adapter.type", message, "conflict", "Leave packing out, or use lora or ia3.")
    if isinstance(adapter, PrefixTuningAdapter) and setting.recomputes:
        message = "the prefix is kept in the model's cache, and activation checkpointing runs without one"
        yield Problem("adapter.type", message, "conflict", "Leave gradient_checkpointing out, or use prompt_tuning.")


def _lora(adapter: LoraAdapter, on_quantised: bool, setting: Setting) -> Iterator[Problem]:
    start = str(adapter.init_lora_weights)
    takes_base = _reads_base(adapter)
    if on_quantised and takes_base:
        message = f"{start} starts from the base's own numbers, and a quantised base has only rounded ones"
        yield Problem("adapter.init_lora_weights", message, "conflict", "Use true or gaussian.")
    if on_quantised and adapter.target_parameters:
        message = "bare parameters of a quantised base cannot be adapted by PEFT"
        yield Problem(
            "adapter.target_parameters", message, "conflict", "Use target_modules, or leave quantization out."
        )
    if setting.zero_stage == 3:
        if takes_base:
            message = f"{start} reads and changes whole weights, and under ZeRO-3 no rank holds one"
            yield Problem("adapter.init_lora_weights", message, "conflict", "Use true or gaussian, or ZeRO 0 to 2.")
        for name in ("layer_replication", "target_parameters", "trainable_token_indices"):
            if getattr(adapter, name):
                message = "reads whole weights, and under ZeRO-3 no rank holds one"
                yield Problem(f"adapter.{name}", message, "conflict", "Leave it out, or use ZeRO 0 to 2.")
    if adapter.loraplus_lr_ratio is not None and setting.has_own_optimizer:
        message = "the optimizer of the DeepSpeed block has one rate for all, and LoRA+ needs two"
        yield Problem("adapter.loraplus_lr_ratio", message, "conflict", "Leave `optimizer` out of parallel.deepspeed.")
    yield from _tied(adapter, setting)


def _tied(adapter: LoraAdapter, setting: Setting) -> Iterator[Problem]:
    """PEFT unties a trained copy of tied embeddings with a warning in the log alone; a merge then loses half of it."""
    shape = read_shape(setting.model_config)
    if shape is None or not shape.is_tied or adapter.ensure_weight_tying:
        return
    outer = ("embed_tokens", "wte", "lm_head")
    for field in ("target_modules", "modules_to_save"):
        names = getattr(adapter, field)
        found = [one for one in names or () if one.rpartition(".")[2] in outer] if isinstance(names, list) else []
        if found:
            message = f"the model's input and output embeddings are one matrix, and {found[0]} alone would be trained"
            hint = "Set ensure_weight_tying to true, or leave it out."
            yield Problem(f"adapter.{field}", message, "conflict", hint)


def _ia3_defaults(setting: Setting) -> Iterator[Problem]:
    kind = setting.model_config.get("model_type")
    if read_shape(setting.model_config) is not None and kind not in IA3_DEFAULTS:
        message = f"PEFT knows no modules of its own choice for model type {kind}"
        hint = "Name target_modules and feedforward_modules, such as k_proj, v_proj, down_proj and down_proj."
        yield Problem("adapter.target_modules", message, "missing", hint)


# The model's own modules -------------------------------------------------------------------------------------------


def _names(adapter: AnyAdapter, setting: Setting) -> Iterator[Problem]:
    """Name by name, as PEFT only complains where none of them fits."""
    modules = read_modules(setting.model_config) or []
    names = all_names(modules)
    fields = ["target_modules", "feedforward_modules"]
    if setting.method in (*LANGUAGE_METHODS, "preference"):  # others have heads that the config does not tell of
        fields.append("modules_to_save")
    for field in fields:
        wanted = getattr(adapter, field, None)
        for index, one in enumerate(wanted if isinstance(wanted, list) else ()):
            if not any(name == one or name.endswith(f".{one}") for name in names):
                yield _no_module(f"adapter.{field}[{index}]", one, names)


def _no_module(param: str, asked: str, names: set[str]) -> Problem:
    ends = sorted({end for name in names if not (end := name.rpartition(".")[2]).isdigit()})
    near = nearest(asked.rpartition(".")[2], ends)
    hint = f"Did you mean `{near}`?" if near else f"The model has: {', '.join(ends)}."
    return Problem(param, "the model has no module of this name", "invalid_value", hint, repr(asked[:60]))


def _numbers(adapter: AnyAdapter, shape: Shape) -> Iterator[Problem]:
    if isinstance(adapter, FreezeAdapter) and adapter.trainable_layers > shape.n_layers:
        yield _beyond("adapter.trainable_layers", adapter.trainable_layers, f"the model has {shape.n_layers} blocks")
    if not isinstance(adapter, LoraAdapter):
        return
    only = adapter.layers_to_transform
    for index in [only] if isinstance(only, int) else only or []:
        if index >= shape.n_layers:
            yield _beyond("adapter.layers_to_transform", index, f"the model's blocks are 0 to {shape.n_layers - 1}")
    for _, end in adapter.layer_replication or ():
        if end > shape.n_layers:
            yield _beyond("adapter.layer_replication", end, f"the model has {shape.n_layers} blocks")
    wanted = adapter.trainable_token_indices or []
    for ids in wanted.values() if isinstance(wanted, dict) else [wanted]:
        if ids and max(ids) >= shape.vocabulary:
            what = f"the model has embeddings for {shape.vocabulary} tokens"
            yield _beyond("adapter.trainable_token_indices", max(ids), what)


def _beyond(param: str, found: int, what: str) -> Problem:
    return Problem(param, what, "out_of_range", "Give a smaller number.", str(found))
