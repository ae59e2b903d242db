"""Jobs as fine-tunes: found by metadata and by the names of what they made, made once when a client sends twice.

A job made over any face is one; `fine_tunes` holds what a request of the OpenAI face said beyond it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.core import jobs
from api.core.auth import Actor
from api.core.checkpoints import Listed, listing
from api.core.db import now
from api.core.errors import Conflict, Invalid, NotFound
from api.core.ids import is_id
from api.core.openai_tables import FineTune, FineTuneCreate
from api.core.settings import Settings
from api.core.specs import JobSpec
from api.core.states import TERMINAL, State
from api.core.tables import Checkpoint, Job, JobLabel
from api.core.upserts import insert_missing

ORGANIZATION = "trainyard"
# A body that comes again this soon is taken for the client's retry of a request whose answer was lost.
REPEAT_WITHIN = timedelta(minutes=10)
# A client that says it retries waited up to ten minutes for each answer before, twice.
RETRY_WITHIN = timedelta(minutes=35)


@dataclass(frozen=True)
class Tuned:
    """A job with what was asked for it here, and whether there is a model to be named."""

    job: Job
    suffix: str | None
    request: dict[str, Any] | None
    has_model: bool

    @property
    def name(self) -> str:
        return model_name(self.job, self.suffix)


def model_name(job: Job, suffix: str | None, step: int | None = None) -> str:
    """`ft:{base}:{org}:{suffix}:{id}`, and for a checkpoint `:ckpt-step-{n}`; a suffix is made plain."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", suffix or "").strip("-")
    end = "" if step is None else f":ckpt-step-{step}"
    return f"ft:{job.model_name}:{ORGANIZATION}:{plain}:{job.id.partition('_')[2]}{end}"


# Making one ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A request for a job: its body as sent, its digest, and whether the client says that it sends it again."""

    body: dict[str, Any]
    sha256: str
    suffix: str | None = None
    idempotency_key: str | None = None
    is_retry: bool = False


def create(session: Session, spec: JobSpec, asked: Asked, actor: Actor, settings: Settings) -> tuple[Job, bool]:
    """The job and whether it is new.

    With an Idempotency-Key that alone decides. Without one, the same body of the same key within ten minutes gets the
    job it made, as long as that is not over; a request that says it is a retry gets it in any state.
    """
    if asked.idempotency_key is not None:
        job, is_new = jobs.create(session, spec, actor, asked.idempotency_key, settings)
        if is_new:
            _remember(session, job, asked)
        return job, is_new
    made = _newest(session, asked, actor)
    earlier = session.get(Job, made.job_id) if made.job_id else None
    if earlier is not None and _is_repeat(earlier, made, asked):
        return earlier, False
    job, _ = jobs.create(session, spec, actor, None, settings)
    _remember(session, job, asked)
    made.job_id, made.created_at = job.id, now()
    session.flush()
    return job, True


def _newest(session: Session, asked: Asked, actor: Actor) -> FineTuneCreate:
    """The row of this key and body, locked: of two equal requests at once the second waits here for the first."""
    key = {"api_key_id": actor.id, "request_sha256": asked.sha256}
    insert_missing(session, FineTuneCreate, [key | {"job_id": None, "created_at": now()}])
    query = select(FineTuneCreate).filter_by(**key).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).one()


def _is_repeat(earlier: Job, made: FineTuneCreate, asked: Asked) -> bool:
    age = now() - made.created_at
    if asked.is_retry:
        return age <= RETRY_WITHIN
    return age <= REPEAT_WITHIN and State(earlier.state) not in TERMINAL


def _remember(session: Session, job: Job, asked: Asked) -> None:
    session.add(FineTune(job_id=job.id, suffix=asked.suffix, request=asked.body))
    session.flush()


# Finding some --------------------------------------------------------------------------------------------------------


def get(session: Session, job_id: str) -> Tuned:
    """Raises NotFound with the code and param that OpenAI's clients know."""
    job = session.get(Job, job_id) if is_id(job_id) else None
    if job is None:
        raise NotFound("there is no such fine-tuning job", code="fine_tune_not_found", param="fine_tune_id")
    return _tuned(session, [job])[0]


def page(
    session: Session, after: str | None, limit: int, metadata: Mapping[str, str] | None, *, only_bare: bool = False
) -> tuple[list[Tuned], bool]:
    """A page of jobs, newest first, and whether more follow. `only_bare`: those without any metadata."""
    query = select(Job).order_by(Job.id.desc()).limit(limit + 1)
    if after is not None:
        if not is_id(after):
            raise Invalid("this is the id of no job; pass the last one of the page before", param="after")
        query = query.where(Job.id < after)
    if only_bare:
        query = query.where(Job.id.not_in(select(JobLabel.job_id)))
    for key, value in (metadata or {}).items():
        query = query.where(Job.id.in_(select(JobLabel.job_id).where(JobLabel.key == key, JobLabel.value == value)))
    found = list(session.scalars(query))
    return _tuned(session, found[:limit]), len(found) > limit


def models(session: Session) -> list[Tuned]:
    """Every job that made a model which is still there, newest first."""
    has_some = select(Checkpoint.job_id)
    query = select(Job).where(Job.state == State.SUCCEEDED.value, Job.id.in_(has_some)).order_by(Job.id.desc())
    return _tuned(session, list(session.scalars(query)))


def _tuned(session: Session, found: Sequence[Job]) -> list[Tuned]:
    ids = [job.id for job in found]
    asked = {row.job_id: row for row in session.scalars(select(FineTune).where(FineTune.job_id.in_(ids)))}
    kept = set(session.scalars(select(Checkpoint.job_id).where(Checkpoint.job_id.in_(ids)).distinct()))
    return [
        Tuned(
            job,
            suffix=asked[job.id].suffix if job.id in asked else None,
            request=asked[job.id].request if job.id in asked else None,
            has_model=job.state == State.SUCCEEDED and job.id in kept,
        )
        for job in found
    ]


def find_model(session: Session, name: str, job_id: str, step: int | None) -> tuple[Tuned, Listed]:
    """The job and the checkpoint that a `ft:` name stands for: the best one, else the last. Raises NotFound."""
    missing = NotFound(f"there is no model {name[:200]!r}, or it was deleted", code="model_not_found", param="model")
    job = session.get(Job, job_id) if is_id(job_id) else None
    if job is None:
        raise missing
    tuned = _tuned(session, [job])[0]
    listed = listing(session, job_id)
    chosen = _chosen(listed) if step is None else next((one for one in listed if one.checkpoint.step == step), None)
    if chosen is None or (step is None and not tuned.has_model) or name != model_name(job, tuned.suffix, step):
        raise missing
    return tuned, chosen


def _chosen(listed: Collection[Listed]) -> Listed | None:
    best = next((one for one in listed if one.is_best), None)
    return best or next((one for one in listed if one.is_last), None)


def delete_model(session: Session, tuned: Tuned, step: int | None) -> list[str]:
    """Take the job's model (every checkpoint of it), or one checkpoint, off the list; the storage prefixes to be
    emptied once this is committed. Raises Conflict while a job that is not over needs it, or makes it."""
    job = tuned.job
    if State(job.state) not in TERMINAL:
        raise Conflict(f"the job {job.id} still makes this model; cancel it first", code="model_in_use", param="model")
    start = Job.resolved["start"]["job_id"].as_string()
    users = session.scalars(select(Job.id).where(Job.state.not_in(TERMINAL), start == job.id).limit(5)).all()
    if users:
        raise Conflict(f"jobs that are not over start from it: {', '.join(users)}", code="model_in_use", param="model")
    query = select(Checkpoint).where(Checkpoint.job_id == job.id)
    rows = list(session.scalars(query if step is None else query.where(Checkpoint.step == step)))
    for row in rows:
        session.delete(row)
        if row.step == job.best_step:
            job.best_step = job.best_value = None
    session.flush()
    return [row.storage_prefix for row in rows]
