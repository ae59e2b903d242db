"""What a run leaves in storage: its complete checkpoints and its artifacts, as rows."""

from __future__ import annotations

import math

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from api.core.clean import clean_json
from api.core.db import now
from api.core.fencing import live
from api.core.ids import new_id
from api.core.tables import Artifact, Checkpoint, Job
from trainer_core.contract import Manifest


def add_checkpoint(
    session: Session, attempt_id: str, manifest: Manifest, manifest_sha256: str, storage_prefix: str, is_best: bool
) -> None:
    """Lists a checkpoint whose files are all in storage. Adding a step again replaces its row. Raises Lost.

    `is_best` makes it the job's best one; a metric that is not finite never is.
    """
    attempt, job = live(session, attempt_id)
    row = session.scalar(select(Checkpoint).where(Checkpoint.job_id == job.id, Checkpoint.step == manifest.step))
    if row is None:
        row = Checkpoint(id=new_id("ckpt"), job_id=job.id, step=manifest.step)
        session.add(row)
    row.attempt = attempt.number
    row.epoch = manifest.epoch
    row.storage_prefix = storage_prefix
    row.manifest = clean_json(manifest.model_dump(mode="json"))
    row.manifest_sha256 = manifest_sha256
    row.size_bytes = manifest.size_bytes
    row.metrics = clean_json(manifest.metrics)
    row.created_at = now()
    session.flush()
    value = _best_value(job, manifest)
    if is_best and (value is None or math.isfinite(value)):
        _set_best(session, job, manifest.step, value)


def _best_value(job: Job, manifest: Manifest) -> float | None:
    """The figure it is best by. Null: the run measured nothing to compare by."""
    name = job.resolved.get("metric_for_best", "eval_loss")
    value = manifest.metrics.get(name)
    return None if value is None else float(value)


def _set_best(session: Session, job: Job, step: int, value: float | None) -> None:
    session.execute(
        update(Job)
        .where(Job.id == job.id)
        .values(best_step=step, best_value=value)
        .execution_options(synchronize_session=False)
    )
    session.refresh(job)


def remove_checkpoint(session: Session, attempt_id: str, step: int) -> None:
    """Takes a checkpoint off the list, before its files go. Doing it twice is fine. Raises Lost."""
    _attempt, job = live(session, attempt_id)
    session.execute(delete(Checkpoint).where(Checkpoint.job_id == job.id, Checkpoint.step == step))
    if job.best_step == step:
        session.execute(
            update(Job)
            .where(Job.id == job.id, Job.best_step == step)
            .values(best_step=None, best_value=None)
            .execution_options(synchronize_session=False)
        )
        session.refresh(job)


def add_artifact(session: Session, attempt_id: str, path: str, storage_key: str, size_bytes: int, sha256: str) -> None:
    """Lists a file of the run that is in storage; a path again replaces its row. Raises Lost."""
    _attempt, job = live(session, attempt_id)
    row = session.get(Artifact, (job.id, path))
    if row is None:
        row = Artifact(job_id=job.id, path=path)
        session.add(row)
    row.storage_key = storage_key
    row.size_bytes = size_bytes
    row.sha256 = sha256
    row.created_at = now()
    session.flush()
