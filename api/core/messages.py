"""The trainer's records in words: an event for people made of each record that is not a metric. Pure."""

from __future__ import annotations

from typing import Any

from api.core.events import NewEvent
from trainer_core.contract import (
    AnyRecord,
    CheckpointRemoved,
    CheckpointSaved,
    Done,
    Evaluated,
    Failed,
    Metrics,
    Note,
    PhaseChanged,
    Planned,
    Started,
    Stopped,
)

_UNITS = ("kB", "MB", "GB", "TB")


def event_for(record: AnyRecord) -> NewEvent | None:
    """The event that says what `record` says; null for metrics, which have rows of their own."""
    if isinstance(record, Metrics | Evaluated):
        return None
    level = "info"
    if isinstance(record, Failed):
        level = "error"
    elif isinstance(record, Note):
        level = record.level
    data = record.model_dump(exclude={"seq", "at", "type"})
    return NewEvent(record.type, _words(record), level=level, data=_trimmed(data), at=record.at, seq=record.seq)


def _trimmed(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value is not None}


def _words(record: AnyRecord) -> str:
    match record:
        case Started():
            return _started(record)
        case PhaseChanged():
            return f"Phase: {record.phase.value}"
        case Planned():
            return (
                f"Plan: {record.total_steps:,} steps over {record.n_train_rows:,} rows in batches of "
                f"{record.global_batch_size:,}; {record.trainable_parameters:,} of {record.total_parameters:,} "
                "parameters are trained"
            )
        case CheckpointSaved():
            best = ", the best so far" if record.is_best else ""
            return f"Checkpoint at step {record.step:,} saved ({size(record.size_bytes)}{best})"
        case CheckpointRemoved():
            return f"Checkpoint at step {record.step:,} removed"
        case Note():
            return record.message
        case Done():
            best = "" if record.best_step is None else f"; the best checkpoint is at step {record.best_step:,}"
            return f"Training finished: {record.step:,} of {record.total_steps:,} steps done{best}"
        case Stopped():
            return _stopped(record)
        case Failed():
            hint = f". {record.cause.hint}" if record.cause.hint else ""
            return f"{record.cause.message}{hint}"
        case _:
            return ""


def _started(record: Started) -> str:
    processes = "1 process" if record.world_size == 1 else f"{record.world_size} processes"
    resumed = "" if record.resumed_from_step is None else f", resumed from step {record.resumed_from_step:,}"
    return f"Running in {processes} on {record.device}{resumed}"


def _stopped(record: Stopped) -> str:
    if record.checkpoint_step is None:
        return f"Stopped at step {record.step:,} ({record.reason})"
    return f"Stopped at step {record.step:,} ({record.reason}); checkpoint at step {record.checkpoint_step:,}"


def size(n_bytes: int) -> str:
    """`12.3 MB`, in powers of 1000, as disks and downloads count."""
    if n_bytes < 1000:
        return f"{n_bytes} bytes"
    value = float(n_bytes)
    for unit in _UNITS:
        value /= 1000
        if value < 999.95 or unit == _UNITS[-1]:
            break
    return f"{value:.1f} {unit}"
