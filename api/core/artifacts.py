"""Files a run left behind besides its checkpoints: results, plots, card, raw logs. Rows say what may be read."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.core.checkpoints import job_of
from api.core.errors import NotFound, Unavailable
from api.core.names import is_safe_key
from api.core.storage import Pinned, Storage
from api.core.tables import Artifact


def listing(session: Session, job_id: str) -> list[Artifact]:
    """What is in storage so far, by path; the job may still run."""
    job_of(session, job_id)
    return list(session.scalars(select(Artifact).where(Artifact.job_id == job_id).order_by(Artifact.path)))


def pick(session: Session, job_id: str, path: str) -> Artifact:
    job_of(session, job_id)
    artifact = session.get(Artifact, (job_id, path)) if is_safe_key(path) else None
    if artifact is None:
        raise NotFound("no such file")
    return artifact


def pin(storage: Storage, artifact: Artifact) -> Pinned:
    """The file, held open. Raises Unavailable when it is not the one the row tells of."""
    pinned = storage.pin(artifact.storage_key)
    if pinned.size_bytes != artifact.size_bytes:
        pinned.close()
        raise Unavailable(f"{artifact.path} is being replaced; try again", code="storage_changed")
    return pinned
