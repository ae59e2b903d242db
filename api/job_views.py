"""A job's row as the API shows it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from api.core.db import now
from api.core.scheduling import Standing
from api.core.states import State
from api.core.tables import Job
from api.schemas import JobBrief, JobOut
from api.wire import split_values


def job_out(job: Job, standing: Standing | None, held_back: str | None = None) -> JobOut:
    """Everything known of a job; `held_back` says why it may not be placed at all for now."""
    metric = job.resolved.get("metric_for_best")
    return JobOut(**_shown(job, metric, standing, held_back), resolved=job.resolved, preflight=job.preflight)


def job_brief(
    job: Job, metric_for_best: str | None, standing: Standing | None, held_back: str | None = None
) -> JobBrief:
    """A job in a list, of which `resolved` was not read."""
    return JobBrief(**_shown(job, metric_for_best, standing, held_back))


def _shown(job: Job, metric_for_best: str | None, standing: Standing | None, held_back: str | None) -> dict[str, Any]:
    latest, nonfinite = split_values(job.latest)
    as_asked = {key: job.spec[key] for key in ("dataset", "adapter", "training", "parallel", "continue_from")}
    same = {
        name: getattr(job, name)
        for name in (
            *("id", "name", "state", "phase", "health", "cause", "method", "labels", "priority", "notes"),
            *("planned_steps", "step", "epoch", "attempt", "best_step", "best_value"),
            *("time_limit_s", "not_before", "excluded", "faults"),
            *("project", "created_at", "queued_at", "started_at", "finished_at"),
        )
    }
    return {
        **same,
        **as_asked,
        "model": job.model_name,
        "progress": _progress(job),
        "eta_s": _eta_s(job, now()),
        "eta_to_start_s": standing.eta_s if standing else None,
        "queue_position": standing.position if standing else None,
        "waiting_reason": standing.reason if standing else held_back,
        "preemptible": job.is_preemptible,
        "resources": job.constraints,
        "depends_on": job.spec.get("depends_on", []),
        "metric_for_best": metric_for_best,
        "latest": latest,
        "latest_nonfinite": nonfinite,
    }


def _progress(job: Job) -> float:
    if job.state == State.SUCCEEDED:
        return 1.0
    return min(1.0, job.step / job.planned_steps) if job.planned_steps else 0.0


def _eta_s(job: Job, at: datetime) -> float | None:
    """The estimate as it stands now: it was made at `progressed_at`, and time has passed since."""
    if job.eta_s is None or job.progressed_at is None or job.state != State.RUNNING:
        return None
    return max(0.0, job.eta_s - (at - job.progressed_at).total_seconds())
