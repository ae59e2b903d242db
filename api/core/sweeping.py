"""The sweep: what the rows say should have happened by now and has not. Every step may run twice.

Silence has two limits: after the first a run is called unreachable and goes on, after the second it is fenced off and
its job is queued again. Silence counts only while somebody was there to hear: a database or a scheduler that was away
makes no run lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from api.core import dependencies, events, nodes, outcomes, preflights
from api.core.db import Database
from api.core.events import NewEvent
from api.core.fencing import locked
from api.core.moves import move
from api.core.outcomes import Outcome
from api.core.settings import Settings
from api.core.states import ON_DEVICES, AttemptState, Health, NodeState, State
from api.core.tables import Attempt, Job, Node
from trainer_core.contract import Cause, CauseCode


def sweep(database: Database, settings: Settings, *, watching_since: datetime, at: datetime) -> list[str]:
    """Marks silent nodes, calls silent runs unreachable, takes back lost and unlaunched ones; cancels whoever waits
    for what will never succeed; ends drains of nodes that are empty.

    Returns the jobs whose preflight nobody works on; they are to be nudged again.
    """
    with database.session() as session:
        _mark_silent_nodes(session, settings, at)
    for attempt_id in _suspects(database, settings, watching_since, at):
        with database.session() as session:
            _judge(session, attempt_id, settings, watching_since, at)
    dependencies.cancel_hopeless(database)
    with database.session() as session:
        nodes.settle_drains(session)
        return _stuck_preflights(session, settings, at)


def _mark_silent_nodes(session: Session, settings: Settings, at: datetime) -> None:
    session.execute(
        update(Node)
        .where(
            Node.state != NodeState.UNREACHABLE.value, Node.beat_at < at - timedelta(seconds=settings.attempt_lease_s)
        )
        .values(state=NodeState.UNREACHABLE.value)
        .execution_options(synchronize_session=False)
    )


def _suspects(database: Database, settings: Settings, watching_since: datetime, at: datetime) -> Iterable[str]:
    with database.reading() as session:
        query = (
            select(Attempt, Job.state)
            .join(Job, Job.id == Attempt.job_id)
            .where(Attempt.state != AttemptState.ENDED.value)
        )
        return [
            attempt.id
            for attempt, job_state in session.execute(query)
            if _is_unwanted(attempt, State(job_state))
            or _silent_s(attempt, watching_since, at) >= settings.attempt_lease_s
        ]


def _is_unwanted(attempt: Attempt, job_state: State) -> bool:
    """Nobody launched it, and nobody will: its job was asked to stop."""
    return attempt.state == AttemptState.PLACED and job_state is not State.STARTING


def _silent_s(attempt: Attempt, watching_since: datetime, at: datetime) -> float:
    heard_at = attempt.beat_at or attempt.launched_at or attempt.placed_at
    return (at - max(heard_at, watching_since)).total_seconds()


def _judge(session: Session, attempt_id: str, settings: Settings, watching_since: datetime, at: datetime) -> None:
    """Decides on the locked row: a beat or a launch may have come since it was suspected."""
    attempt = locked(session, attempt_id)
    if attempt.state == AttemptState.ENDED:
        return
    job = session.get_one(Job, attempt.job_id, populate_existing=True)
    silent_s = _silent_s(attempt, watching_since, at)
    node = session.get_one(Node, attempt.node_id)
    if _is_unwanted(attempt, State(job.state)):
        outcome = Outcome(result="stopped")
    elif attempt.state == AttemptState.PLACED and silent_s >= settings.attempt_lease_s:
        outcome = _lost(f"{node.name} did not launch the run within {settings.attempt_lease_s:g} s", node.name)
    elif silent_s >= settings.lost_after_s:
        outcome = _lost(f"nothing was heard from the run on {node.name} for {settings.lost_after_s:g} s", node.name)
    else:
        if silent_s >= settings.attempt_lease_s:
            _call_unreachable(session, attempt, settings)
        return
    outcomes.end(session, attempt.id, outcome, settings=settings, at=at)


def _lost(message: str, node_name: str) -> Outcome:
    hint = "look at the node and its worker; the run stops by itself once it can ask again"
    return Outcome(result="lost", cause=Cause(code=CauseCode.NODE_LOST, message=message, hint=hint, host=node_name))


def _call_unreachable(session: Session, attempt: Attempt, settings: Settings) -> None:
    marked = session.scalars(
        update(Job)
        .where(
            Job.id == attempt.job_id,
            Job.attempt == attempt.number,
            Job.health != Health.UNREACHABLE.value,
            Job.state.in_(sorted(ON_DEVICES)),
        )
        .values(health=Health.UNREACHABLE.value)
        .returning(Job.id)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    if marked is not None:
        words = f"Nothing heard from the run for {settings.attempt_lease_s:g} s; it may well be going on"
        events.append(session, attempt.job_id, [NewEvent("unreachable", words, level="warning")])


def _stuck_preflights(session: Session, settings: Settings, at: datetime) -> list[str]:
    """Jobs to be nudged; one whose preflight never came to an end is failed instead."""
    waiting = session.execute(
        select(Job.id, Job.n_preflights).where(*preflights.unclaimed(at)).order_by(Job.created_at)
    ).all()
    nudged = []
    for job_id, n_preflights in waiting:
        if n_preflights >= settings.max_attempts_internal:
            _give_up(session, job_id, n_preflights, at)
        else:
            nudged.append(job_id)
    return nudged


def _give_up(session: Session, job_id: str, n_preflights: int, at: datetime) -> None:
    cause = Cause(
        code=CauseCode.INTERNAL,
        message=f"the check before the start was begun {n_preflights} times and never came to an end",
        hint="look at the worker's log and at the memory of its machine",
    ).model_dump(mode="json", exclude_none=True)
    event = NewEvent("failed", f"Failed: {cause['message']}", level="error", data=cause)
    move(session, job_id, State.FAILED, event, also=preflights.unclaimed(at), cause=cause)
