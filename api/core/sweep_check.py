"""A sweep looked at as a whole before anything of it runs: its paths, its size, its objective, its jobs' bodies."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pydantic import ValidationError
from sqlalchemy.orm import Session

from api.core.errors import Invalid
from api.core.resolve import Accepted, resolve
from api.core.settings import Settings
from api.core.specs import JobSpec, detail_of
from api.core.sweep_space import Values, body_with, choices, corners, grid_point, grid_size, random_point
from api.core.sweep_specs import MAX_TRIALS, SweepSpec
from trainer_core.methods_table import METHODS, metrics_before_reading
from trainer_core.problems import Problem, from_validation_error, nearest, show

MAX_CHECKED = 96
MAX_PROBLEMS = 20
FIXED = frozenset(
    {"name", "method", "labels", "notes", "project", "priority", "depends_on", "preemptible", "resources", "stall"}
)
TRAINING: dict[str, bool | None] = {"loss": False, "grad_norm": None, "tokens_per_second": True, "memory_bytes": False}
"""Figures of training that every method logs -> whether a greater one is better; null: that has to be said."""


@dataclass(frozen=True)
class Checked:
    spec: SweepSpec
    n_trials: int
    greater_is_better: bool
    notes: list[str]


def check(session: Session, spec: SweepSpec, settings: Settings) -> Checked:
    """Raises Invalid with every fault found: those of the sweep itself, then those of the jobs it would make."""
    problems = [*_paths(spec), *_size(spec)]
    if problems:
        raise _refused(problems)
    n_trials = grid_size(spec.parameters) if spec.search == "grid" else spec.n_trials or 0
    n_trials = min(n_trials, spec.n_trials or n_trials)
    points, is_whole = _points(spec, n_trials)
    accepted = [_accept(session, spec, values, settings, problems) for values in points]
    found = [one for one in accepted if one is not None]
    if problems or not found:
        raise _refused(problems)
    greater = _objective(spec, found[0])
    problems += _halving(spec, found)
    if isinstance(greater, Problem):
        problems.append(greater)
    if problems or isinstance(greater, Problem):
        raise _refused(problems)
    notes = [] if is_whole else [f"{len(points)} points of the space were checked; a trial that is refused fails alone"]
    return Checked(_frozen(spec, found[0]), n_trials, greater, notes)


def _refused(problems: list[Problem]) -> Invalid:
    first = problems[0]
    details = [detail_of(problem) for problem in problems[:MAX_PROBLEMS]]
    return Invalid(str(first), code=first.code, param=first.param, details=details)


def _paths(spec: SweepSpec) -> Iterator[Problem]:
    names = list(JobSpec.model_fields)
    paths = sorted(spec.parameters)
    for path in paths:
        head = path.partition(".")[0]
        if head in FIXED:
            hint = "Name one that changes the training, such as training.learning_rate."
            yield Problem(f"parameters.{path}", f"`{head}` is the same for every trial", "not_served", hint)
        elif head not in names or not all(path.split(".")):
            near = nearest(head, names) or nearest(path.rpartition(".")[2], names)
            hint = f"Did you mean `{near}`?" if near else f"Paths begin with one of {', '.join(sorted(names))}."
            yield Problem(f"parameters.{path}", f"no field of a job is called `{head[:60]}`", "unknown_key", hint)
    for shorter, longer in itertools.permutations(paths, 2):
        if longer.startswith(f"{shorter}."):
            yield Problem(f"parameters.{longer}", f"lies within `{shorter}`, which is varied too", "conflict")


def _size(spec: SweepSpec) -> Iterator[Problem]:
    if spec.search != "grid":
        return
    endless = [path for path, space in spec.parameters.items() if choices(space) is None]
    for path in endless:
        message = "a grid needs values that can be counted, found a range without `step` or `n_points`"
        yield Problem(f"parameters.{path}", message, "invalid_value", "Add n_points, or search by random or tpe.")
    if not endless and spec.n_trials is None and (size := grid_size(spec.parameters)) > MAX_TRIALS:
        message = f"the grid has {size:,} combinations, a sweep at most {MAX_TRIALS:,} trials"
        yield Problem("parameters", message, "out_of_range", "Take fewer values, or give n_trials.")


def _points(spec: SweepSpec, n_trials: int) -> tuple[list[Values], bool]:
    """What is tried, and whether that is all that will run."""
    if spec.search == "grid" and n_trials <= MAX_CHECKED:
        return [grid_point(spec.parameters, number) for number in range(n_trials)], True
    if spec.search == "random" and n_trials <= MAX_CHECKED:
        return [random_point(spec.parameters, spec.seed, number) for number in range(n_trials)], True
    return list(corners(spec.parameters, MAX_CHECKED)), False


def _accept(
    session: Session, spec: SweepSpec, values: Values, settings: Settings, problems: list[Problem]
) -> Accepted | None:
    try:
        return resolve(session, trial_spec(spec, values), settings)
    except ValidationError as invalid:
        found = from_validation_error(invalid, JobSpec)
    except Invalid as invalid:
        found = [_of_detail(detail) for detail in invalid.details]
    said = {(problem.param, problem.message) for problem in problems}
    placed = [_placed(spec, values, one) for one in found]
    problems += [one for one in placed if (one.param, one.message) not in said]
    return None


def trial_spec(spec: SweepSpec, values: Values) -> JobSpec:
    """The job of a trial, but for name and labels. Raises ValidationError."""
    return JobSpec.model_validate(body_with(spec.job, values))


def _of_detail(detail: dict[str, str | None]) -> Problem:
    param = detail["param"] or ""
    text = (detail["message"] or "").removeprefix(f"{param}: ")
    hint = detail["hint"]
    return Problem(param, text.removesuffix(f" {hint}").removesuffix(".") if hint else text, detail["code"] or "", hint)


def _placed(spec: SweepSpec, values: Values, problem: Problem) -> Problem:
    """With the path as in the sweep's body: a varied field is at fault by its space, any other by the job."""
    path = next((path for path in spec.parameters if (problem.param + ".").startswith(path + ".")), None)
    if path is None:
        return replace(problem, param=f"job.{problem.param}")
    found = None if "(found " in problem.message else problem.found or show(values[path], path)
    return replace(problem, param=f"parameters.{path}", found=found)


def _objective(spec: SweepSpec, accepted: Accepted) -> bool | Problem:
    """Whether a greater value is better, or why the metric cannot judge."""
    metric, job, training = spec.objective.metric, accepted.spec, accepted.resolved.training
    has_eval = job.dataset.eval is not None or job.dataset.eval_fraction is not None
    evaluated = metrics_before_reading(job, training)
    known: dict[str, bool | None] = {**TRAINING, **(evaluated if has_eval else {})}
    if metric not in known:
        if not has_eval and metric in evaluated:
            hint = "Give dataset.eval or dataset.eval_fraction, or take `loss`."
            return Problem(
                "objective.metric", f"`{metric}` needs an evaluation, and the job has none", "conflict", hint
            )
        near = nearest(metric, known)
        also = metric in METHODS[job.method].metrics
        why = "is not computed with these options" if also else f"is not a figure of {job.method}"
        hint = (f"Did you mean `{near}`? " if near else "") + f"It logs: {', '.join(sorted(known))}."
        return Problem("objective.metric", f"`{metric[:60]}` {why}", "invalid_value", hint)
    if spec.objective.direction is not None:
        return spec.objective.direction == "maximize"
    greater = known[metric]
    if greater is None:
        return Problem("objective.direction", f"expected minimize or maximize: `{metric}` has no better end", "missing")
    return greater


def _halving(spec: SweepSpec, found: list[Accepted]) -> Iterator[Problem]:
    if spec.early_stopping is None:
        return
    longest = max(one.resolved.planned_steps for one in found)
    if spec.early_stopping.min_steps >= longest:
        message = f"expected a first rung before the last of {longest:,} steps"
        found_text = show(spec.early_stopping.min_steps)
        yield Problem("early_stopping.min_steps", message, "out_of_range", "Give a smaller one.", found_text)


def _frozen(spec: SweepSpec, accepted: Accepted) -> SweepSpec:
    """Datasets by id, so that every trial reads the same rows; a dataset that is varied stays as it was named."""
    dataset = dict(spec.job.get("dataset") or {})
    for split in ("train", "eval"):
        if f"dataset.{split}" not in spec.parameters and "dataset" not in spec.parameters and dataset.get(split):
            dataset[split] = getattr(accepted.spec.dataset, split)
    return spec.model_copy(update={"job": {**spec.job, "dataset": dataset}} if dataset else {})
