"""Sweeps: made once whatever is sent twice, looked at, cancelled. What moves one on is in `sweep_round.py`."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from api.core import sweep_check
from api.core.auth import Actor
from api.core.errors import Conflict, Invalid, NotFound
from api.core.ids import is_id, new_id
from api.core.jobs import check_key
from api.core.moves import request_cancel
from api.core.settings import Settings
from api.core.states import TERMINAL, State
from api.core.sweep_specs import SweepSpec
from api.core.sweep_tables import Sweep, SweepTrial
from api.core.tables import Job


class SweepState(StrEnum):
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN = (SweepState.RUNNING, SweepState.CANCELLING)
PRUNED = "pruned"
STOPPING = "stopping"
ENDED = frozenset({*TERMINAL, PRUNED})


@dataclass(frozen=True)
class Trial:
    """A trial with what its job says."""

    row: SweepTrial
    state: str
    """The job's, but `pruned` and before that `stopping` for one that was stopped early."""
    attempt: int = 0
    step: int = 0
    planned_steps: int | None = None
    latest: float | str | None = None

    @property
    def is_over(self) -> bool:
        return self.state in ENDED

    @property
    def is_judged(self) -> bool:
        """Whether it can be the best: it ran to its end and has a finite objective."""
        return self.state == State.SUCCEEDED and self.row.value is not None


def create(
    session: Session, spec: SweepSpec, actor: Actor, idempotency_key: str | None, settings: Settings
) -> tuple[Sweep, bool]:
    """The sweep and whether it is new: a repeated request with the same key gets the sweep that the first one made.

    Raises Invalid with every fault at once, and Invalid (`idempotency_key_reused`).
    """
    digest = _digest(spec)
    if idempotency_key is not None:
        check_key(idempotency_key)
        if (made := _made_before(session, actor, idempotency_key, digest)) is not None:
            return made, False
    checked = sweep_check.check(session, spec, settings)
    sweep = Sweep(
        id=new_id("swp"),
        name=spec.name,
        state=SweepState.RUNNING.value,
        spec=checked.spec.model_dump(mode="json"),
        metric=spec.objective.metric,
        greater_is_better=checked.greater_is_better,
        n_trials=checked.n_trials,
        labels=dict(spec.labels),
        notes=checked.notes,
        request_sha256=digest,
        idempotency_key=idempotency_key,
        created_by=actor.id,
    )
    try:
        with session.begin_nested():
            session.add(sweep)
            session.flush()
    except IntegrityError:
        made = _made_before(session, actor, idempotency_key, digest) if idempotency_key is not None else None
        if made is None:
            raise
        return made, False
    return sweep, True


def _digest(spec: SweepSpec) -> str:
    body = json.dumps(spec.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()


def _made_before(session: Session, actor: Actor, key: str, digest: str) -> Sweep | None:
    query = select(Sweep).where(Sweep.created_by == actor.id, Sweep.idempotency_key == key)
    made = session.scalars(query).one_or_none()
    if made is not None and made.request_sha256 != digest:
        raise Invalid(
            f"this Idempotency-Key was used for another body, which made {made.id}; take a fresh key for a new sweep",
            code="idempotency_key_reused",
            param="Idempotency-Key",
        )
    return made


def get(session: Session, sweep_id: str) -> Sweep:
    """Raises NotFound."""
    sweep = session.get(Sweep, sweep_id) if is_id(sweep_id) else None
    if sweep is None:
        raise NotFound("there is no such sweep")
    return sweep


def find(session: Session, cursor: str | None, limit: int) -> tuple[list[Sweep], str | None]:
    """A page of sweeps, newest first, and the cursor of the page that follows."""
    query = select(Sweep).order_by(Sweep.id.desc()).limit(limit + 1)
    if cursor is not None:
        if not is_id(cursor):
            raise Invalid("this is no cursor of a list of sweeps; pass `next` of the page before", param="after")
        query = query.where(Sweep.id < cursor)
    found = list(session.scalars(query))
    return found[:limit], found[limit - 1].id if len(found) > limit else None


def locked(session: Session, sweep_id: str) -> Sweep:
    """The sweep with its row locked: whoever changes it or makes its trials comes one after the other."""
    # SQLite has no row locks; its transactions that write come one after the other anyway.
    return session.get_one(Sweep, sweep_id, populate_existing=True, with_for_update=True)


def trials(session: Session, sweep: Sweep, after: int = -1, limit: int | None = None) -> list[Trial]:
    """In the order they were made, from the one that follows `after`."""
    query = (
        select(SweepTrial, Job.state, Job.attempt, Job.step, Job.planned_steps, Job.latest)
        .outerjoin(Job, Job.id == SweepTrial.job_id)
        .where(SweepTrial.sweep_id == sweep.id, SweepTrial.number > after)
        .order_by(SweepTrial.number)
        .limit(limit)
        .execution_options(populate_existing=True)
    )
    return [
        Trial(row, _state(row, state), attempt or 0, step or 0, planned, (latest or {}).get(sweep.metric))
        for row, state, attempt, step, planned, latest in session.execute(query)
    ]


def _state(row: SweepTrial, job_state: str | None) -> str:
    if job_state is None:
        return State.FAILED.value
    if row.pruned_at_step is None:
        return job_state
    if job_state == State.CANCELLED:
        return PRUNED
    # It may have come to its end before it heard that it was to stop; then that is what happened.
    return job_state if State(job_state) in TERMINAL else STOPPING


def best_of(sweep: Sweep, found: Sequence[Trial]) -> Trial | None:
    """The best of those that ran to their end; of equal ones the earlier."""
    judged = [trial for trial in found if trial.is_judged]
    sign = -1.0 if sweep.greater_is_better else 1.0
    return min(judged, key=lambda trial: (sign * (trial.row.value or 0.0), trial.row.number)) if judged else None


def counts_of(sweep: Sweep, found: Sequence[Trial]) -> dict[str, int]:
    """How many trials are in each state, how many are made, still to come, and were tried more than once."""
    states = Counter(trial.state for trial in found)
    still = sweep.n_trials - len(found) if sweep.state == SweepState.RUNNING else 0
    return {
        **{state: states[state] for state in sorted(states)},
        "made": len(found),
        "to_come": still,
        "retried": sum(trial.attempt > 1 for trial in found),
    }


def cancel(session: Session, sweep_id: str, by: str) -> tuple[Sweep, list[str]]:
    """No further trials, and those under way are cancelled; asking twice is fine. The sweep, and the jobs asked.

    Raises NotFound, and Conflict (`already_finished`).
    """
    get(session, sweep_id)
    sweep = locked(session, sweep_id)
    if sweep.state == SweepState.CANCELLING:
        return sweep, []
    if sweep.state != SweepState.RUNNING:
        raise Conflict(
            f"the sweep is {sweep.state} already; only one that runs can be cancelled", code="already_finished"
        )
    sweep.state = SweepState.CANCELLING.value
    session.flush()
    asked = [trial.row.job_id for trial in trials(session, sweep) if trial.row.job_id and not trial.is_over]
    for job_id in asked:
        cancel_job(session, job_id, f"{by}, with the sweep {sweep.name}")
    return sweep, asked


def cancel_job(session: Session, job_id: str, by: str) -> bool:
    """Asks a trial's job to stop; False where it has come to its end meanwhile."""
    try:
        request_cancel(session, job_id, by)
    except Conflict:
        return False
    return True
