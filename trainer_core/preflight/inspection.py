"""What a CPU can find out about a run before a device is spent: rows, loss mask, steps, memory, disk. Torch-free.

Everything is exact that can be: all rows are read and encoded, since the planned steps depend on how many remain.
"""

from __future__ import annotations

import os
import traceback
from typing import Any

from pydantic import ValidationError

from trainer_core.contract import Cause, CauseCode, PreflightReport, RunConfig, RunFolder, peft_part
from trainer_core.data.encoded_report import DataReport
from trainer_core.data.prepare import prepare
from trainer_core.data.prepare_text import read_texts
from trainer_core.memory.estimate import Dtype, checkpoint_bytes, estimate
from trainer_core.memory.quantised import quantization_of
from trainer_core.memory.shape import count_parameters
from trainer_core.memory.strategies import weights_dtype
from trainer_core.memory.trained import count_trained
from trainer_core.methods_table import METHODS
from trainer_core.model.files import check_fit, check_kind, count_stored_parameters, read_model_config
from trainer_core.model.tokenizer import LoadedTokenizer, load_tokenizer
from trainer_core.problems import OptionsInvalid, from_validation_error
from trainer_core.run.faults import Fault, cause_of
from trainer_core.steps import StepPlan, plan_steps
from trainer_core.zero.owners import RELEASE_DEFAULTS, stage_of, strategy_of


def inspect_folder(folder: RunFolder) -> int:
    """Read config.json, write preflight.json. Returns 0 whatever the report says, 1 when the inspection broke down."""
    code = 0
    try:
        report = _inspect_file(folder)
    except Exception as error:  # the whole preflight ends here, and the cause is recorded
        traceback.print_exc()
        report, code = PreflightReport(ok=False, cause=cause_of(error)), 1
    _write(folder, report)
    return code


def inspect_run(config: RunConfig) -> PreflightReport:
    """The report, up to the first thing that is wrong with the run."""
    found: dict[str, Any] = {}
    try:
        _inspect(config, found)
    except Fault as fault:
        return PreflightReport(ok=False, cause=fault.cause, **found)
    return PreflightReport(ok=True, **found)


def _inspect_file(folder: RunFolder) -> PreflightReport:
    try:
        config = RunConfig.model_validate_json(folder.config.read_bytes())
    except FileNotFoundError:
        message = "There is no config.json in the run folder."
        return PreflightReport(ok=False, cause=Cause(code=CauseCode.CONFIG_INVALID, message=message))
    except ValidationError as error:
        first = from_validation_error(error, RunConfig)[0]
        cause = Cause(
            code=CauseCode.CONFIG_INVALID,
            message=f"config.json does not hold a run configuration: {first.param} {first.message}",
            hint=first.hint,
            param=first.param,
        )
        return PreflightReport(ok=False, cause=cause)
    return inspect_run(config)


def _inspect(config: RunConfig, found: dict[str, Any]) -> None:
    """Fills `found` with fields of PreflightReport, cheap checks first. Raises Fault at the first thing wrong."""
    model_config = read_model_config(config.model)
    check_kind(METHODS[config.method].kind, config.model.name, model_config)
    loaded = load_tokenizer(config.model, config.method)
    n_stored = count_stored_parameters(config.model)
    report, longest = _read_data(config, loaded)
    found |= _data_fields(report)
    found["notes"] += check_fit(model_config, len(loaded.tokenizer), longest)
    plan = _plan(config, report.n_train_rows)
    found |= {"planned_steps": plan.total_steps, "steps_per_epoch": plan.steps_per_epoch}
    found["notes"] += plan.notes
    found |= _needs(config, model_config, count_parameters(model_config) or n_stored, longest)


def _read_data(config: RunConfig, loaded: LoadedTokenizer) -> tuple[DataReport, int]:
    """What the rows are, and the most positions that one of them takes."""
    if config.method == "pretrain":
        report = read_texts(config, loaded)
        return report, report.longest
    prepared = prepare(config, loaded)
    longest = prepared.report.longest
    if config.method == "seq2seq":  # the decoder has positions of its own
        longest = max(longest, *(len(row.labels) for row in prepared.train))
    return prepared.report, longest


def _data_fields(report: DataReport) -> dict[str, Any]:
    return {
        "n_train_rows": report.n_train_rows,
        "n_eval_rows": report.n_eval_rows,
        "n_rows_truncated": report.n_truncated,
        "n_rows_dropped": report.n_dropped,
        "trained_tokens": report.trained_tokens,
        "total_tokens": report.total_tokens,
        "histogram": report.histogram,
        "sample": report.sample,
        "sample_text": report.sample_text,
        "notes": list(report.notes),
    }


def _needs(config: RunConfig, model_config: dict[str, Any], total: int | None, longest: int) -> dict[str, Any]:
    """Size of the model, memory a device and disk a checkpoint: null where the model's type does not tell."""
    if total is None:
        return {}
    stage = stage_of(config.parallel) if strategy_of(config.parallel) == "deepspeed" else None
    dtype = _dtype(config, is_deepspeed=stage is not None)
    training = RELEASE_DEFAULTS | config.training
    memory = estimate(
        model_config,
        total,
        adapter=config.adapter,
        quantization=quantization_of(config.quantization, model_config),
        dtype=dtype,
        zero_stage=stage,
        offload=config.parallel.offload,
        n_processes=config.parallel.n_processes,
        per_device_batch=training["per_device_train_batch_size"],
        max_length=longest,
        optim=training["optim"],
        gradient_checkpointing=bool(training.get("gradient_checkpointing") or training.get("activation_checkpointing")),
    )
    trainable = total if config.adapter is None else count_trained(model_config, config.adapter)
    disk = None
    if trainable is not None:
        disk = checkpoint_bytes(
            total,
            n_trainable=None if config.adapter is None else trainable,
            dtype=dtype,
            optim=training["optim"],
            zero_stage=stage,
            saves_whole=peft_part(config.adapter) is None,
        )
    return {
        "n_parameters": total,
        "memory_bytes_per_device": None if memory is None else memory.device_bytes,
        "disk_bytes_per_checkpoint": disk,
    }


def _dtype(config: RunConfig, *, is_deepspeed: bool) -> Dtype:
    return weights_dtype(
        config.training,
        has_adapter=peft_part(config.adapter) is not None,
        device=config.device,
        is_deepspeed=is_deepspeed,
        model_dtype=config.model.dtype,
    )


def _plan(config: RunConfig, n_rows: int) -> StepPlan:
    """The steps by the Trainer's arithmetic; what the job leaves open has the Trainer's defaults."""
    training = RELEASE_DEFAULTS | config.training
    try:
        return plan_steps(
            n_rows=n_rows,
            n_processes=config.parallel.n_processes,
            per_device_batch=training["per_device_train_batch_size"],
            accumulation=training["gradient_accumulation_steps"],
            epochs=training.get("num_train_epochs", 3.0),
            max_steps=training.get("max_steps"),
            drop_last=training.get("dataloader_drop_last", False),
            warmup=training["warmup_steps"],
        )
    except OptionsInvalid as invalid:
        first = invalid.problems[0]
        raise Fault(CauseCode.CONFIG_INVALID, first.message, hint=first.hint, param=first.param) from invalid


def _write(folder: RunFolder, report: PreflightReport) -> None:
    """Appears whole or not at all: the service looks for the file."""
    partial = folder.preflight.with_name(f"{folder.preflight.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(report.model_dump_json(indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder.preflight)
