"""Estimates of a job: from its model's config, its rows and the runs before it. Reads rows and one config.json."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.core import capacity
from api.core.capacity import Room
from api.core.estimated import JobEstimate, MemoryOut, StrategyOut, TimeOut, TokensOut
from api.core.specs import JobSpec, Resolved, ResourceSpec
from api.core.states import State
from api.core.strategy import Choice, choose, fits_everywhere, smallest
from api.core.tables import BaseModel, Job, MetricRow
from trainer_core.contract import ParallelSpec
from trainer_core.memory.strategies import STRATEGIES, Load, Need, Strategy, needs, strategy_asked

BYTES_A_TOKEN = 4
MAX_CONFIG_BYTES = 4 * 1024**2
N_SIMILAR = 50
N_PACES = 200


def choice_of(
    session: Session, spec: JobSpec, model: BaseModel, training: dict[str, Any], device: Literal["cpu", "cuda"]
) -> Choice | None:
    """What strategy auto comes to; null where the job names its strategy."""
    if strategy_asked(spec.parallel) is not None:
        return None
    load = _load(model, spec, training, spec.parallel, spec.dataset.max_length, device)
    return choose(load, capacity.rooms(session, device, spec.parallel.n_processes, spec.resources))


def estimate_job(session: Session, resolved: Resolved, model: BaseModel, wanted: ResourceSpec) -> JobEstimate:
    """The estimate of a job with the strategy it was resolved to."""
    load, rooms = _of(session, resolved, model, wanted)
    asked = strategy_asked(resolved.parallel) or Strategy(None)
    chosen = needs(load, [asked])
    tokens = _tokens(session, resolved)
    return JobEstimate(
        n_parameters=load.n_parameters,
        n_trainable=load.n_trainable,
        planned_steps=resolved.planned_steps,
        tokens=tokens,
        time=_time(session, resolved, tokens.total),
        chosen=_out(chosen[0], rooms) if chosen else None,
        device_memory_bytes=smallest(rooms),
        notes=_notes(load, rooms),
    )


def compare(session: Session, resolved: Resolved, model: BaseModel, wanted: ResourceSpec) -> list[StrategyOut]:
    """Every strategy for the same job, the fastest first; empty where the model's size is not known."""
    load, rooms = _of(session, resolved, model, wanted)
    return [_out(need, rooms) for need in needs(load, STRATEGIES)]


def warning(estimate: JobEstimate) -> list[str]:
    """For the notes of a job that names a strategy which does not fit: it is run as asked, and said."""
    if estimate.chosen is None or estimate.chosen.fits is not False:
        return []
    needed, there = estimate.chosen.memory.device_bytes, estimate.device_memory_bytes or 0
    return [f"It may run out of memory: an estimated {needed:,} bytes a device, which has {there:,}."]


def read_config(model: BaseModel) -> dict[str, Any]:
    """The model's config.json where its folder is on this machine, else what was kept of it at registration."""
    path = Path(model.source) / "config.json"
    try:
        if path.is_absolute() and path.stat().st_size <= MAX_CONFIG_BYTES:
            config = json.loads(path.read_bytes())
            if isinstance(config, dict):
                return config
    except (OSError, ValueError):
        pass  # the folder may be on the nodes alone
    return dict(model.details)


def _of(session: Session, resolved: Resolved, model: BaseModel, wanted: ResourceSpec) -> tuple[Load, list[Room]]:
    parallel, device = resolved.parallel, resolved.device
    load = _load(model, resolved, resolved.training, parallel, resolved.data.max_length, device)
    return load, capacity.rooms(session, device, parallel.n_processes, wanted)


def _load(
    model: BaseModel,
    asked: JobSpec | Resolved,
    training: dict[str, Any],
    parallel: ParallelSpec,
    max_length: int,
    device: Literal["cpu", "cuda"],
) -> Load:
    return Load(
        model_config=read_config(model),
        n_stored=model.details.get("n_parameters"),
        adapter=asked.adapter,
        quantization=asked.quantization,
        training=training,
        n_processes=parallel.n_processes,
        max_length=max_length,
        device=device,
    )


def _out(need: Need, rooms: Sequence[Room]) -> StrategyOut:
    strategy = need.strategy
    return StrategyOut(
        strategy=strategy.name,
        zero_stage=strategy.stage,
        offload=strategy.offload,
        memory=MemoryOut(**{name: getattr(need.memory, name) for name in MemoryOut.model_fields}),
        checkpoint_bytes=need.checkpoint_bytes,
        fits=fits_everywhere(need, rooms),
    )


def _notes(load: Load, rooms: Sequence[Room]) -> list[str]:
    notes = []
    kind = load.model_config.get("model_type")
    if load.n_parameters is None:
        notes.append("The model's size is not known here: no config.json of a known type and no weight files.")
    elif not load.counts_activations:
        notes.append(f"Activations and logits are not counted: the layers of model type {kind} are not known.")
    if smallest(rooms) is None:
        notes.append("The memory of the devices is not known.")
    elif load.device == "cpu":
        notes.append("A CPU slot counts as its share of the host's memory; no run is held to it.")
    return notes


# Tokens and time ---------------------------------------------------------------------------------------------------


def _tokens(session: Session, resolved: Resolved) -> TokensOut:
    """Counted where a job over the same rows was checked before, else four bytes of the file a token."""
    data, rows = resolved.data, resolved.data.train
    counted = _counted(session, resolved)
    guess = min(rows.size_bytes // BYTES_A_TOKEN, rows.n_rows * data.max_length)
    per_epoch = counted[1] if counted else guess * data.n_train_rows // max(rows.n_rows, 1)
    n_epochs = resolved.planned_steps / max(resolved.steps_per_epoch, 1)
    return TokensOut(
        per_epoch=per_epoch, total=int(per_epoch * n_epochs), counted_by_job=counted[0] if counted else None
    )


def _counted(session: Session, resolved: Resolved) -> tuple[str, int] | None:
    """(job, tokens an epoch) by the newest check of the same rows, read in the same way."""
    same = Job.resolved[("data", "train", "sha256")].as_string() == resolved.data.train.sha256
    query = (
        select(Job.id, Job.resolved, Job.preflight)
        .where(Job.model_name == resolved.model.name, Job.method == resolved.method, Job.preflight.is_not(None), same)
        .order_by(Job.id.desc())
        .limit(N_SIMILAR)
    )
    for job_id, other, preflight in session.execute(query):
        if _reading(other["data"]) == _reading(resolved.data.model_dump(mode="json")) and preflight["total_tokens"]:
            return job_id, preflight["total_tokens"]
    return None


def _reading(data: dict[str, Any]) -> list[Any]:
    """All that decides which tokens come of the same rows."""
    return [data.get(name) for name in ("eval_fraction", "format", "columns", "render", "max_length")]


def _time(session: Session, resolved: Resolved, n_tokens: int) -> TimeOut | None:
    """By the newest similar run, one of as many processes before others; the pace grows with the processes."""
    query = (
        select(Job.id, Job.resolved)
        .where(Job.model_name == resolved.model.name, Job.method == resolved.method, Job.state == State.SUCCEEDED.value)
        .order_by(Job.id.desc())
        .limit(N_SIMILAR)
    )
    n_here = resolved.parallel.n_processes
    similar = [(job_id, other) for job_id, other in session.execute(query) if _kind(other) == _kind_of(resolved)]
    for job_id, other in sorted(similar, key=lambda found: found[1]["parallel"]["n_processes"] != n_here):
        pace, n_there = _pace(session, job_id), other["parallel"]["n_processes"]
        if pace:
            scaled = pace * n_here / n_there
            return TimeOut(seconds=n_tokens / scaled, tokens_per_second=scaled, job_id=job_id, n_processes=n_there)
    return None


def _kind(resolved: dict[str, Any]) -> tuple[str | None, str | None]:
    return (resolved.get("adapter") or {}).get("type"), resolved.get("device")


def _kind_of(resolved: Resolved) -> tuple[str | None, str | None]:
    return resolved.adapter.type if resolved.adapter else None, resolved.device


def _pace(session: Session, job_id: str) -> float | None:
    """Tokens a second over all processes: the median of the run's newest figures, which a slow first step leaves be."""
    query = (
        select(MetricRow.values)
        .where(MetricRow.job_id == job_id, MetricRow.kind == "train", MetricRow.is_superseded.is_(False))
        .order_by(MetricRow.n.desc())
        .limit(N_PACES)
    )
    paces = [values.get("tokens_per_second") for values in session.scalars(query)]
    known = [float(pace) for pace in paces if isinstance(pace, int | float) and pace > 0]
    return statistics.median(known) if known else None
