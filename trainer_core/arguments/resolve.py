"""A job's `training` block becomes TrainingArguments of the installed release, or every reason why it cannot.

Pure and torch-free: the service calls it at submit. Names the trainer itself sets are never among the values:
output_dir, report_to, use_cpu, seed, deepspeed, disable_tqdm, remove_unused_columns, logging_nan_inf_filter and
load_best_model_at_end (see `arguments_gone.REFUSED`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trainer_core.arguments.checks import check_together
from trainer_core.arguments.read import Reading, read
from trainer_core.arguments.table import (
    ACCEPTED,
    CADENCE_SHARE,
    LEARNING_RATE_ADAPTER,
    LEARNING_RATE_FULL,
    NO_WARMUP_SCHEDULERS,
    SHORT_RUN,
    WARMUP_SHARE,
)
from trainer_core.problems import OptionsInvalid


@dataclass(frozen=True)
class Resolved:
    """Options ready for `TrainingArguments(**values)`, and what the service itself takes from them."""

    values: dict[str, Any]
    """By the installed release's names, with the service's defaults filled in."""
    metric_for_best: str
    """A key of the evaluation's records, or `loss` when nothing is evaluated."""
    greater_is_better: bool
    seed: int | None = None
    """The job's seed, if the block named one."""
    notes: list[str] = field(default_factory=list)
    """What a person should read: names translated, cadences moved, options that the service takes over."""


def resolve(
    training: Mapping[str, Any],
    *,
    has_eval: bool,
    device: Literal["cpu", "cuda"],
    adapter: bool,
    strategy: Literal["ddp", "deepspeed"],
    available_metrics: Collection[str] | Mapping[str, bool] = ("eval_loss",),
    extra_packages: Collection[str] = (),
    method: str = "sft",
    default_rate: float | None = None,
) -> Resolved:
    """Translates, checks and completes the block. Raises OptionsInvalid with all problems at once.

    `has_eval` says whether eval rows will be there; `available_metrics` are the figures the method's evaluation
    computes, as a mapping with whether a greater one is better; `extra_packages` are importable packages beyond the
    trainer's own, for optimizers and kernels of others; `default_rate` is the learning rate where none is
    given, null the usual one.
    """
    reading = read(training, device=device, generates=method == "seq2seq")
    values = reading.values
    taken = {name: values.pop(name, None) for name in ("seed", "save_total_limit", "load_best_model_at_end")}
    metric, greater = values.pop("metric_for_best_model", None), values.pop("greater_is_better", None)
    _settle_strategies(reading, training, has_eval=has_eval)
    check_together(reading, device=device, strategy=strategy, extra_packages=extra_packages)
    evaluates = values.get("eval_strategy", "no") != "no"
    best = _best_metric(reading, metric, evaluates=evaluates, available=available_metrics)
    if reading.problems:
        raise OptionsInvalid(reading.problems)
    greater_is_better = greater if greater is not None else _is_greater_better(best, available_metrics)
    if values.get("lr_scheduler_type") in ("reduce_lr_on_plateau", "greedy"):
        values |= {"metric_for_best_model": best, "greater_is_better": greater_is_better}
    usual_rate = LEARNING_RATE_ADAPTER if adapter else LEARNING_RATE_FULL
    _fill_defaults(values, device=device, rate=default_rate or usual_rate)
    notes = [*reading.notes, *_note_on_cadence(values), *_promises(taken, training, values)]
    return Resolved(values, best, greater_is_better, taken["seed"], notes)


# When the run evaluates and saves ----------------------------------------------------------------------------------


def _settle_strategies(reading: Reading, training: Mapping[str, Any], *, has_eval: bool) -> None:
    """Fills in eval_strategy, save_strategy and their steps, or says why they cannot be met."""
    values = reading.values
    if reading.was_refused("eval_strategy", "evaluation_strategy", "save_strategy", "eval_steps", "save_steps"):
        return
    if not has_eval:
        _settle_without_eval(reading, training)
    else:
        _settle_with_eval(reading)
    for name in ("eval", "save"):
        strategy, steps = values[f"{name}_strategy"], values.get(f"{name}_steps")
        if strategy != "steps" and steps is not None:
            reading.notes.append(
                f"{name}_steps {steps:g} does not act with {name}_strategy {strategy} and was left out."
            )
            del values[f"{name}_steps"]


def _settle_without_eval(reading: Reading, training: Mapping[str, Any]) -> None:
    values = reading.values
    asked = values.get("eval_strategy", "no")
    name = "evaluation_strategy" if "evaluation_strategy" in training else "eval_strategy"
    hint = "Give dataset.eval or dataset.eval_fraction, or leave the option out."
    if asked != "no":
        reading.refuse(name, "asks for evaluation, but the job has no eval rows", "conflict", hint=hint, found=asked)
    if values.get("eval_on_start"):
        reading.refuse("eval_on_start", "asks for evaluation, but the job has no eval rows", "conflict", hint=hint)
    values["eval_strategy"] = "no"
    values.setdefault("save_strategy", "steps")
    if values["save_strategy"] == "steps":
        values.setdefault("save_steps", CADENCE_SHARE)


def _settle_with_eval(reading: Reading) -> None:
    values = reading.values
    asked_eval, asked_save = values.get("eval_strategy"), values.get("save_strategy")
    evaluate = asked_eval or ("steps" if "eval_steps" in values else asked_save) or "steps"
    follows = evaluate if evaluate != "no" else "steps"
    save = asked_save or ("steps" if "save_steps" in values else follows)
    values |= {"eval_strategy": evaluate, "save_strategy": save}
    if evaluate == "steps":
        values.setdefault("eval_steps", values.get("save_steps", CADENCE_SHARE))
    if save == "steps":
        values.setdefault("save_steps", values.get("eval_steps", CADENCE_SHARE))


def _note_on_cadence(values: Mapping[str, Any]) -> list[str]:
    """Said where some checkpoint falls on a step that eval_steps alone would not evaluate.

    The Trainer's own load-best refuses such cadences or dies at the first evaluation. The run instead evaluates
    wherever it saves, and saves its last step, so a best checkpoint always exists.
    """
    asked = {name: (values[f"{name}_strategy"], values.get(f"{name}_steps")) for name in ("eval", "save")}
    (evaluates, eval_steps), (_, save_steps) = asked["eval"], asked["save"]
    if evaluates == "no" or asked["eval"] == asked["save"]:
        return []
    if eval_steps and save_steps and eval_steps >= 1 and save_steps % eval_steps == 0:
        return []
    words = {name: strategy if steps is None else f"{steps:g} {strategy}" for name, (strategy, steps) in asked.items()}
    return [
        f"Evaluation ({words['eval']}) and saving ({words['save']}) do not always meet: every checkpoint is evaluated "
        "when it is saved, besides the evaluations asked for."
    ]


def _best_metric(reading: Reading, asked: str | None, *, evaluates: bool, available: Collection[str]) -> str:
    """The figure that decides which checkpoint is best. `loss` and `accuracy` mean `eval_loss` and `eval_accuracy`."""
    if not evaluates:
        if asked not in (None, "loss"):
            reading.refuse(
                "metric_for_best_model",
                "nothing is evaluated in this job, so only the training loss can decide",
                "conflict",
                hint="Give eval rows, or leave the option out.",
                found=asked,
            )
        return "loss"
    if asked is None:
        return "eval_loss"
    full = asked if asked.startswith("eval_") else f"eval_{asked}"
    if full not in available:
        reading.refuse(
            "metric_for_best_model",
            f"is no figure this evaluation computes; it computes {', '.join(sorted(available))}",
            "not_available",
            found=asked,
        )
    return full


def _is_greater_better(best: str, available: Collection[str] | Mapping[str, bool]) -> bool:
    return bool(available[best]) if isinstance(available, Mapping) and best in available else not best.endswith("loss")


# Defaults and promises ---------------------------------------------------------------------------------------------


def _fill_defaults(values: dict[str, Any], *, device: str, rate: float) -> None:
    """The service's defaults for what was not given; the table says why each is what it is."""
    for option in ACCEPTED.values():
        if option.default is not None:
            values.setdefault(option.name, option.default)
    values.setdefault("learning_rate", rate)
    is_short = values.get("max_steps", SHORT_RUN) < SHORT_RUN
    has_warmup = values["lr_scheduler_type"] not in NO_WARMUP_SCHEDULERS and not is_short
    values.setdefault("warmup_steps", WARMUP_SHARE if has_warmup else 0)
    values.setdefault("optim", "adamw_torch_fused" if device == "cuda" else "adamw_torch")
    values.setdefault("per_device_eval_batch_size", values["per_device_train_batch_size"])
    if values["logging_strategy"] != "steps":
        del values["logging_steps"]


def _promises(taken: Mapping[str, Any], training: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """Notes on what the service does instead of the option that was given."""
    notes = []
    if taken["load_best_model_at_end"]:
        notes.append("load_best_model_at_end: the best and the last checkpoint are both kept and both downloadable.")
    if taken["save_total_limit"] is not None:
        notes.append(
            "save_total_limit: the best and the newest checkpoints are kept whatever the limit (see retention)."
        )
    if training.get("save_strategy") in ("no", "best"):
        notes.append(
            f"save_strategy {training['save_strategy']}: a run saves checkpoints, its last step always, and keeps the "
            "best and the newest; it saves here as if the option were not set."
        )
    if training.get("logging_strategy") == "no":
        notes.append("logging_strategy no: the run is followed by its figures, so they are reported as by default.")
    if "max_steps" in values and training.get("num_train_epochs") is not None:
        notes.append(f"max_steps {values['max_steps']} wins over num_train_epochs.")
    return notes
