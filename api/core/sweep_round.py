"""What a sweep's regular round does: takes the objectives of ended trials, stops hopeless ones, makes the next, ends.

Everything is read from the database and done under the sweep's row lock, so that two rounds at once, or one cut off
anywhere, make no trial twice, judge none twice and lose nothing.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from api.core import events, jobs, queue, sweep_halving, sweeps
from api.core.auth import Actor
from api.core.db import Database
from api.core.errors import Invalid, TooMany
from api.core.events import NewEvent
from api.core.settings import Settings
from api.core.specs import JobSpec
from api.core.states import State
from api.core.sweep_check import trial_spec
from api.core.sweep_halving import Figure
from api.core.sweep_space import Values, grid_point, random_point
from api.core.sweep_specs import SweepSpec
from api.core.sweep_tables import Sweep, SweepTrial
from api.core.sweeps import OPEN, SweepState, Trial
from api.core.tables import Job, MetricRow

log = logging.getLogger(__name__)

NON_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})
MAX_NAME = 200
MAX_REASON = 500


def advance_all(database: Database, settings: Settings, *, at: datetime) -> int:
    """One round of every open sweep; returns how many trials were made. One that fails keeps no other from its own."""
    with database.reading() as session:
        open_ids = session.scalars(select(Sweep.id).where(Sweep.state.in_(OPEN)).order_by(Sweep.id)).all()
    n_made = 0
    for sweep_id in open_ids:
        try:
            n_made += advance(database, sweep_id, settings, at=at)
        except Exception:  # its round ends here; the next begins anew from what the database says
            log.exception("the round of sweep %s failed, tried again at the next look", sweep_id)
    return n_made


def advance(database: Database, sweep_id: str, settings: Settings, *, at: datetime) -> int:
    """One round of one sweep; returns how many trials it made."""
    with database.session() as session:
        stopped = _judge(session, sweeps.locked(session, sweep_id), at)
        where = [jobs.running_on(session, session.get_one(Job, job_id)) for job_id in stopped]
    for running in where:
        if running is not None:
            queue.nudge_stop(*running, settings)
    n_made = 0
    while (job_id := _make_next(database, sweep_id, settings)) is not None:
        n_made += 1
        if job_id:
            queue.nudge_preflight(job_id, settings)
    with database.session() as session:
        _end(session, sweeps.locked(session, sweep_id), at)
    return n_made


# ---------------------------------------------------------------------------------------------------------------------
# Objectives and early stopping
# ---------------------------------------------------------------------------------------------------------------------


def _judge(session: Session, sweep: Sweep, at: datetime) -> list[str]:
    """Writes down rungs and objectives that have come; returns the jobs that were asked to stop."""
    if sweep.state not in OPEN:
        return []
    spec = SweepSpec.model_validate(sweep.spec)
    found = sweeps.trials(session, sweep)
    stopped = []
    for trial in found:
        if trial.row.job_id is None or trial.row.settled_at is not None:
            continue
        if _reach_rungs(session, sweep, spec, trial, [other.row for other in found]):
            stopped.append(trial.row.job_id)
        if trial.is_over:
            _settle(session, sweep, spec, trial.row, at)
        elif sweep.state == SweepState.CANCELLING and sweeps.cancel_job(session, trial.row.job_id, sweep.name):
            stopped.append(trial.row.job_id)
    session.flush()
    return stopped


def _reach_rungs(session: Session, sweep: Sweep, spec: SweepSpec, trial: Trial, rows: Sequence[SweepTrial]) -> bool:
    """Judges the trial at each rung it has newly reached; whether it was asked to stop."""
    halving, row = spec.early_stopping, trial.row
    if halving is None or row.job_id is None or row.pruned_at_step is not None:
        return False
    if trial.step < sweep_halving.rung_step(halving, len(row.rungs)):
        return False
    figures, how = _figures(session, row.job_id, sweep.metric), _how(sweep, spec)
    while (step := sweep_halving.rung_step(halving, rung := len(row.rungs))) < (trial.planned_steps or step + 1):
        reached = sweep_halving.at_rung(figures, step, **how)
        if reached is None:
            return False
        came_at, value = reached
        others = sweep_halving.values_at([other.rungs for other in rows if other is not row], rung)
        keeps = sweep_halving.keeps(halving, value, others, greater_is_better=sweep.greater_is_better)
        row.rungs = [*row.rungs, {"rung": rung, "step": came_at, "value": value, "keeps": keeps}]
        if not keeps and not trial.is_over:
            return _prune(session, sweep, row, came_at, value, len(others) + 1)
    return False


def _prune(session: Session, sweep: Sweep, row: SweepTrial, step: int, value: float | None, n_there: int) -> bool:
    assert row.job_id is not None
    shown = "no finite value" if value is None else f"{value:.6g}"
    reason = (
        f"pruned at step {step}: {sweep.metric} {shown} is not among the best of the {n_there} trials that got there"
    )
    data = {"sweep": sweep.id, "trial": row.number, "step": step, "value": value, "metric": sweep.metric}
    if not sweeps.cancel_job(session, row.job_id, f"the sweep {sweep.name}, {reason}"[:MAX_REASON]):
        return False
    events.append(session, row.job_id, [NewEvent("pruned", f"Stopped early by its sweep: {reason}", data=data)])
    row.pruned_at_step, row.reason = step, reason[:MAX_REASON]
    return True


def _settle(session: Session, sweep: Sweep, spec: SweepSpec, row: SweepTrial, at: datetime) -> None:
    assert row.job_id is not None
    counted = sweep_halving.objective(_figures(session, row.job_id, sweep.metric), **_how(sweep, spec))
    row.value, row.value_step = (counted.value, counted.step) if counted is not None else (None, None)
    row.settled_at = at


def _how(sweep: Sweep, spec: SweepSpec) -> dict[str, bool]:
    return {"greater_is_better": sweep.greater_is_better, "takes_best": spec.objective.value == "best"}


def _figures(session: Session, job_id: str, metric: str) -> list[Figure]:
    """The objective at each step that stands, in order."""
    query = (
        select(MetricRow.step, MetricRow.values)
        .where(MetricRow.job_id == job_id, MetricRow.is_superseded.is_(False))
        .order_by(MetricRow.step, MetricRow.n)
    )
    return [Figure(step, _number(values[metric])) for step, values in session.execute(query) if metric in values]


def _number(value: float | str) -> float | None:
    return None if value in NON_FINITE else float(value)


# ---------------------------------------------------------------------------------------------------------------------
# The next trial
# ---------------------------------------------------------------------------------------------------------------------


def _make_next(database: Database, sweep_id: str, settings: Settings) -> str | None:
    """Makes one trial where there is room; its job's id, empty where its job was refused, null where none was made."""
    with database.reading() as session:
        sweep = sweeps.get(session, sweep_id)
        found = sweeps.trials(session, sweep)
    spec = SweepSpec.model_validate(sweep.spec)
    if not _has_room(sweep, spec, found):
        return None
    # Chosen outside the transaction that writes: tpe may take a second.
    values = _choose(sweep, spec, found)
    with database.session() as session:
        sweep = sweeps.locked(session, sweep_id)
        now_found = sweeps.trials(session, sweep)
        if len(now_found) != len(found) or not _has_room(sweep, spec, now_found):
            return None  # another round was faster
        return _insert(session, sweep, spec, len(found), values, settings)


def _has_room(sweep: Sweep, spec: SweepSpec, found: Sequence[Trial]) -> bool:
    n_open = sum(not trial.is_over for trial in found)
    return sweep.state == SweepState.RUNNING and len(found) < sweep.n_trials and n_open < spec.n_parallel


def _choose(sweep: Sweep, spec: SweepSpec, found: Sequence[Trial]) -> Values:
    number = len(found)
    if spec.search == "grid":
        return grid_point(spec.parameters, number)
    if spec.search == "random":
        return random_point(spec.parameters, spec.seed, number)
    tpe: Any = importlib.import_module("api.core.sweep_tpe")  # loads Optuna, which only this needs
    known = [tpe.Known(trial.row.values, _told(trial)) for trial in found]
    chosen: Values = tpe.suggest(spec.parameters, spec.seed, number, known, greater_is_better=sweep.greater_is_better)
    return chosen


def _told(trial: Trial) -> float | None:
    """A pruned trial's value teaches too: it is what the trial had come to."""
    return trial.row.value if trial.state in (State.SUCCEEDED, sweeps.PRUNED) else None


def _insert(
    session: Session, sweep: Sweep, spec: SweepSpec, number: int, values: Values, settings: Settings
) -> str | None:
    """The trial and its job in one transaction: there is never one without the other."""
    row = SweepTrial(sweep_id=sweep.id, number=number, values=values)
    owner = Actor(sweep.created_by, sweep.created_by, "member")
    try:
        job, _is_new = jobs.create(session, _job_spec(sweep, trial_spec(spec, values), number), owner, None, settings)
    except TooMany:
        return None  # a limit of the project or the user: the next round asks again
    except (Invalid, ValidationError) as refused:
        message = refused.message if isinstance(refused, Invalid) else str(refused)
        row.reason, row.settled_at = f"its job was refused: {message}"[:MAX_REASON], None
        session.add(row)
        return ""
    row.job_id = job.id
    session.add(row)
    session.flush()
    data = {"sweep": sweep.id, "trial": number, "values": values}
    events.append(session, job.id, [NewEvent("trial_of", f"Trial {number} of the sweep {sweep.name}", data=data)])
    return job.id


def _job_spec(sweep: Sweep, spec: JobSpec, number: int) -> JobSpec:
    """Named and labelled after its sweep, by which the list of jobs is narrowed to it."""
    tail = f" #{number}"
    labels = {**spec.labels, **sweep.labels, "sweep": sweep.id, "trial": str(number)}
    return spec.model_copy(update={"name": sweep.name[: MAX_NAME - len(tail)] + tail, "labels": labels})


# ---------------------------------------------------------------------------------------------------------------------
# The end
# ---------------------------------------------------------------------------------------------------------------------


def _end(session: Session, sweep: Sweep, at: datetime) -> None:
    """Ends the sweep once all its trials are over and their objectives taken."""
    if sweep.state not in OPEN:
        return
    found = sweeps.trials(session, sweep)
    is_open = any(not trial.is_over or (trial.row.job_id and trial.row.settled_at is None) for trial in found)
    if is_open or (sweep.state == SweepState.RUNNING and len(found) < sweep.n_trials):
        return
    state, cause = _outcome(sweep, found)
    sweep.state, sweep.cause, sweep.finished_at = state.value, cause, at


def _outcome(sweep: Sweep, found: Sequence[Trial]) -> tuple[SweepState, dict[str, str] | None]:
    if sweep.state == SweepState.CANCELLING:
        return SweepState.CANCELLED, None
    if sweeps.best_of(sweep, found) is not None:
        return SweepState.SUCCEEDED, None
    states = {trial.state for trial in found}
    if State.SUCCEEDED in states:
        message = f"no trial that ran to its end logged a finite {sweep.metric}"
        hint = "look at a trial's metrics; eval figures need eval_steps within the planned steps"
        return SweepState.FAILED, {"code": "no_objective", "message": message, "hint": hint}
    if states == {State.CANCELLED.value}:
        return SweepState.CANCELLED, None
    counted = sweeps.counts_of(sweep, found)
    shown = ", ".join(f"{counted[state]} {state}" for state in sorted(states))
    message, hint = f"no trial ran to its end: {shown}", "look at the cause of the failed trials' jobs"
    return SweepState.FAILED, {"code": "all_trials_failed", "message": message, "hint": hint}
