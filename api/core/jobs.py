"""Jobs: made once whatever is sent twice, found by filters. Moving them on is the business of `moves.py`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, defer

from api.core import dependencies, events, quotas, webhooks
from api.core.auth import Actor
from api.core.clean import clean_text
from api.core.errors import Invalid, NotFound
from api.core.events import NewEvent
from api.core.ids import is_id, new_id
from api.core.resolve import Accepted, resolve
from api.core.settings import Settings
from api.core.specs import JobSpec
from api.core.states import AttemptState, State
from api.core.tables import Attempt, IdempotencyKey, Job, JobLabel, Node

MAX_KEY = 255


@dataclass(frozen=True)
class Filters:
    """What a list of jobs is narrowed to; everything given must hold, of several states one."""

    states: Collection[State] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None


def create(
    session: Session, spec: JobSpec, actor: Actor, idempotency_key: str | None, settings: Settings
) -> tuple[Job, bool]:
    """The job and whether it is new: a repeated request with the same key gets the job that the first one made.

    Raises Invalid with every fault of the body at once, and Invalid (`idempotency_key_reused`) when the key came with
    another body before.
    """
    digest = _digest(spec)
    if idempotency_key is not None:
        check_key(idempotency_key)
        if (made := _made_before(session, actor, idempotency_key, digest)) is not None:
            return made, False
    resolved = resolve(session, spec, settings)
    try:
        # A savepoint: of two equal requests at the same moment the second waits here, fails, and takes the first's job.
        with session.begin_nested():
            quotas.check_submit(session, spec.project, actor.id, resolved.resolved.parallel.n_processes, settings)
            job = _insert(session, resolved, actor)
            if idempotency_key is not None:
                session.add(
                    IdempotencyKey(api_key_id=actor.id, key=idempotency_key, request_sha256=digest, job_id=job.id)
                )
    except IntegrityError:
        made = _made_before(session, actor, idempotency_key, digest) if idempotency_key is not None else None
        if made is None:
            raise
        return made, False
    return job, True


def _insert(session: Session, frozen: Accepted, actor: Actor) -> Job:
    spec, resolved = frozen.spec, frozen.resolved
    job = Job(
        id=new_id("job"),
        name=spec.name or f"{resolved.model.name} on {resolved.data.train.name}"[:200],
        state=State.VALIDATING,
        method=spec.method,
        model_name=resolved.model.name,
        spec=spec.model_dump(mode="json"),
        resolved=resolved.model_dump(mode="json"),
        labels=dict(spec.labels),
        notes=spec.notes,
        priority=spec.priority,
        n_devices=resolved.parallel.n_processes,
        time_limit_s=spec.time_limit_s,
        project=spec.project,
        is_preemptible=spec.preemptible,
        constraints=_constraints(frozen),
        planned_steps=resolved.planned_steps,
        created_by=actor.id,
    )
    session.add(job)
    session.flush()
    session.add_all(JobLabel(job_id=job.id, key=key, value=value) for key, value in spec.labels.items())
    dependencies.keep(session, job.id, spec.depends_on)
    created = NewEvent("created", f"Created: {resolved.planned_steps} steps are planned")
    events.append(session, job.id, [created])
    webhooks.tell(session, job.id, State.VALIDATING, created.message)
    session.refresh(job)
    return job


def _constraints(frozen: Accepted) -> dict[str, Any]:
    """What the devices must be; options that were resolved for CUDA run nowhere else."""
    asked = frozen.spec.resources.model_dump(mode="json")
    return asked | {"device": asked["device"] or ("cuda" if frozen.resolved.device == "cuda" else None)}


def check_key(key: str) -> None:
    """Raises Invalid for what cannot be an Idempotency-Key."""
    if not 1 <= len(key) <= MAX_KEY or not key.isascii() or not key.isprintable():
        raise Invalid(
            f"Idempotency-Key is 1 to {MAX_KEY} printable ASCII characters, found {len(key)} characters",
            code="header_invalid",
            param="Idempotency-Key",
        )


def _digest(spec: JobSpec) -> str:
    """Of what was asked for, whatever the order of keys and the spaces it was written with."""
    body = json.dumps(spec.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(body.encode()).hexdigest()


def _made_before(session: Session, actor: Actor, key: str, digest: str) -> Job | None:
    made = session.get(IdempotencyKey, (actor.id, key), populate_existing=True)
    if made is None:
        return None
    if made.request_sha256 != digest:
        raise Invalid(
            f"this Idempotency-Key was used for another body, which made {made.job_id}; take a fresh key for a new job",
            code="idempotency_key_reused",
            param="Idempotency-Key",
        )
    return session.get_one(Job, made.job_id)


def get(session: Session, job_id: str) -> Job:
    """Raises NotFound; a text that is no id never reaches the database."""
    job = session.get(Job, job_id) if is_id(job_id) else None
    if job is None:
        raise NotFound("there is no such job")
    return job


def running_on(session: Session, job: Job) -> tuple[str, str] | None:
    """(name of the node, id of the attempt) where the job's newest attempt is, as long as that has not ended."""
    query = (
        select(Node.name, Attempt.id)
        .join(Node, Node.id == Attempt.node_id)
        .where(Attempt.job_id == job.id, Attempt.number == job.attempt, Attempt.state != AttemptState.ENDED)
    )
    found = session.execute(query).first()
    return (found[0], found[1]) if found else None


def find(
    session: Session, filters: Filters, cursor: str | None, limit: int
) -> tuple[list[tuple[Job, str | None]], str | None]:
    """A page of jobs, newest first, each with its metric for best, and the cursor of the page that follows.

    `resolved` and `preflight` are left in the database: they are most of a job's bytes, and lists do not show them.
    """
    query = _filtered(filters).order_by(Job.id.desc()).limit(limit + 1)
    if cursor is not None:
        if not is_id(cursor):
            raise Invalid("this is no cursor of a job list; pass `next` of the page before", param="after")
        query = query.where(Job.id < cursor)
    found = [(row[0], row[1]) for row in session.execute(query)]
    return found[:limit], found[limit - 1][0].id if len(found) > limit else None


def _filtered(filters: Filters) -> Select[Any]:
    metric = Job.resolved["metric_for_best"].as_string()
    query = select(Job, metric).options(defer(Job.resolved, raiseload=True), defer(Job.preflight, raiseload=True))
    if filters.states:
        query = query.where(Job.state.in_(sorted(filters.states)))
    if filters.name:
        # Cleaned as what is stored: SQLite finds a NUL in every text, and PostgreSQL refuses the query.
        query = query.where(Job.name.icontains(clean_text(filters.name), autoescape=True))
    for key, value in filters.labels.items():
        labelled = select(JobLabel.job_id).where(JobLabel.key == clean_text(key), JobLabel.value == clean_text(value))
        query = query.where(Job.id.in_(labelled))
    return query
