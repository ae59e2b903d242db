"""Rows as the objects of OpenAI's contract. What it has no field for stands beside, under our own names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from api.core import parts, result_files
from api.core.checkpoints import Listed
from api.core.db import now
from api.core.fine_tunes import ORGANIZATION, Tuned, model_name
from api.core.openai_tables import Upload, UploadPart
from api.core.states import TERMINAL, State
from api.core.tables import BaseModel, Dataset, Event, Job, MetricRow
from api.openai import names
from api.openai.bodies import METHODS, base_rate

Object = dict[str, Any]

# Clients that check strictly know these words only; `state` and `phase` say the rest.
STATUS = {
    State.VALIDATING: "validating_files",
    State.QUEUED: "queued",
    State.PAUSED: "queued",
    State.STARTING: "running",
    State.RUNNING: "running",
    State.PAUSING: "running",
    State.CANCELLING: "running",
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
}
LEVELS = {"debug": "info", "info": "info", "warning": "warn", "error": "error"}
CHECKPOINT_FIGURES = {
    "train_loss": "loss",
    "train_mean_token_accuracy": "mean_token_accuracy",
    "full_valid_loss": "eval_loss",
    "full_valid_mean_token_accuracy": "eval_mean_token_accuracy",
}


def seconds(at: datetime) -> int:
    return int(at.timestamp())


def page(data: Sequence[Object], *, has_more: bool) -> Object:
    ids = [item["id"] for item in data]
    first, last = (ids[0], ids[-1]) if ids else (None, None)
    return {"object": "list", "data": list(data), "first_id": first, "last_id": last, "has_more": has_more}


# Files ---------------------------------------------------------------------------------------------------------------


def file(dataset: Dataset) -> Object:
    return {
        "id": names.file_id(dataset.id),
        "object": "file",
        "bytes": dataset.size_bytes,
        "created_at": seconds(dataset.created_at),
        "filename": dataset.name,
        "purpose": "fine-tune",
        "status": "processed",
        "expires_at": None,
        "status_details": None,
        "dataset": {"id": dataset.id, "format": dataset.format, "n_rows": dataset.n_rows},
    }


def result_file(job: Job, size_bytes: int) -> Object:
    return {
        "id": names.result_file_id(job.id),
        "object": "file",
        "bytes": size_bytes,
        "created_at": seconds(job.finished_at or job.created_at),
        "filename": "step_metrics.csv",
        "purpose": "fine-tune-results",
        "status": "processed",
        "expires_at": None,
        "status_details": None,
    }


def upload(row: Upload, dataset: Dataset | None = None) -> Object:
    return {
        "id": row.id,
        "object": "upload",
        "bytes": row.size_bytes,
        "created_at": seconds(row.created_at),
        "expires_at": seconds(row.expires_at),
        "filename": row.filename,
        "purpose": row.purpose,
        "status": parts.state_of(row),
        "file": file(dataset) if dataset else None,
    }


def part(row: UploadPart) -> Object:
    created = seconds(row.created_at)
    return {"id": row.id, "object": "upload.part", "created_at": created, "upload_id": row.upload_id}


# Jobs ----------------------------------------------------------------------------------------------------------------


def job(tuned: Tuned) -> Object:
    row, resolved = tuned.job, tuned.job.resolved
    data, is_over = resolved["data"], row.state in TERMINAL
    hyper = _hyperparameters(row)
    return {
        "id": names.fine_tune_id(row.id),
        "object": "fine_tuning.job",
        "created_at": seconds(row.created_at),
        "finished_at": seconds(row.finished_at) if row.finished_at else None,
        "estimated_finish": _estimated_finish(row),
        "model": row.model_name,
        "fine_tuned_model": tuned.name if tuned.has_model else None,
        "organization_id": ORGANIZATION,
        "status": STATUS[State(row.state)],
        "hyperparameters": hyper,
        "method": _method(row, hyper, tuned.request or {}),
        "training_file": names.file_id(data["train"]["id"]),
        "validation_file": names.file_id(data["eval"]["id"]) if data["eval"] else None,
        "result_files": [names.result_file_id(row.id)] if result_files.is_there(row) else [],
        "trained_tokens": _trained_tokens(row) if is_over else None,
        "seed": resolved["seed"],
        "error": _error(row.cause) if row.state == State.FAILED else None,
        "integrations": None,
        "metadata": dict(row.labels) or None,
        "suffix": tuned.suffix,
        "state": row.state,
        "phase": row.phase or row.state,
        "progress": {"step": row.step, "planned_steps": row.planned_steps},
        "job_id": row.id,
    }


def _hyperparameters(row: Job) -> Object:
    """What the run really uses, in OpenAI's words. Epochs are left out where steps decide, or a part of one."""
    resolved, training = row.resolved, row.resolved["training"]
    found: Object = {"batch_size": resolved["global_batch_size"]}
    base = base_rate(resolved["adapter"])
    if "learning_rate" in training:
        found["learning_rate_multiplier"] = round(training["learning_rate"] / base, 9)
    epochs = training.get("num_train_epochs")
    if (training.get("max_steps") or -1) < 0 and epochs is not None and float(epochs).is_integer():
        found["n_epochs"] = int(epochs)
    return found


def _method(row: Job, hyper: Object, request: Mapping[str, Any]) -> Object | None:
    """Null for a method that OpenAI has no word for."""
    kind = next((theirs for theirs, ours in METHODS.items() if ours == row.method), None)
    if kind is None:
        return None
    asked = (request.get("method") or {}).get(kind) or {}
    if kind == "reinforcement":
        if "grader" not in asked:
            return None  # made over another face, with graders that may have no form here
        return {"type": kind, kind: {"grader": asked["grader"], "hyperparameters": hyper}}
    own = row.spec.get(row.method) or {}
    beta = {"beta": own["beta"]} if kind == "dpo" and own.get("beta") is not None else {}
    return {"type": kind, kind: {"hyperparameters": hyper | beta}}


def _estimated_finish(row: Job) -> int | None:
    if row.state != State.RUNNING or row.eta_s is None or row.progressed_at is None:
        return None
    return max(seconds(row.progressed_at + timedelta(seconds=row.eta_s)), seconds(now()))


def _trained_tokens(row: Job) -> int | None:
    """Tokens with a label, over all passes that were made; null where the rows were never counted."""
    if not row.preflight or row.epoch is None:
        return None
    in_one_pass: int = row.preflight["trained_tokens"]
    return round(in_one_pass * row.epoch)


def _error(cause: Mapping[str, Any] | None) -> Object:
    if cause is None:
        return {"code": "internal", "message": "the job failed, and no cause was recorded", "param": None}
    hint = f" {cause['hint']}" if cause.get("hint") else ""
    return {"code": cause["code"], "message": f"{cause['message']}{hint}", "param": cause.get("param")}


# What a job says and leaves ------------------------------------------------------------------------------------------


def event(item: Event | MetricRow) -> Object:
    shown = {"object": "fine_tuning.job.event", "created_at": seconds(item.at)}
    if isinstance(item, Event):
        return shown | {
            "id": names.event_id(item.job_id, "e", item.n),
            "level": LEVELS.get(item.level, "info"),
            "message": item.message,
            "type": "message",
            "data": {"kind": item.kind, **item.data},
        }
    figures = result_files.figures(item.values)
    words = ", ".join(f"{name.replace('_', ' ')}={_short(value)}" for name, value in figures.items())
    return shown | {
        "id": names.event_id(item.job_id, "m", item.n),
        "level": "info",
        "message": f"Step {item.step}: {words or item.kind}",
        "type": "metrics",
        "data": {"step": item.step, **figures, **item.values},
    }


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def checkpoint(tuned: Tuned, listed: Listed) -> Object:
    row = listed.checkpoint
    figures = {name: row.metrics.get(own) for name, own in CHECKPOINT_FIGURES.items()}
    known = {name: value for name, value in figures.items() if isinstance(value, int | float)}
    return {
        "id": names.checkpoint_id(row.id),
        "object": "fine_tuning.job.checkpoint",
        "created_at": seconds(row.created_at),
        "fine_tuned_model_checkpoint": model_name(tuned.job, tuned.suffix, row.step),
        "fine_tuning_job_id": names.fine_tune_id(tuned.job.id),
        "step_number": row.step,
        "metrics": {"step": row.step, **known},
        "is_best": listed.is_best,
        "is_last": listed.is_last,
    }


# Models --------------------------------------------------------------------------------------------------------------


def base_model(row: BaseModel) -> Object:
    return {"id": row.name, "object": "model", "created": seconds(row.created_at), "owned_by": "trainyard"}


def tuned_model(tuned: Tuned, step: int | None = None, at: datetime | None = None) -> Object:
    made = at or tuned.job.finished_at or tuned.job.created_at
    name = model_name(tuned.job, tuned.suffix, step)
    return {"id": name, "object": "model", "created": seconds(made), "owned_by": ORGANIZATION, "job_id": tuned.job.id}
