"""From the body of a job to what its run will really use, or every reason why it cannot run, all at once.

Everything that can be known without the model's weights or a device is settled here. Reads rows, writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.core import adapters, dependencies, estimates
from api.core.chosen import count_rows, find_dataset, find_model, format_of, resolved_model, resolved_rows, with_ids
from api.core.errors import Invalid
from api.core.estimated import JobEstimate
from api.core.settings import Settings
from api.core.specs import ContinueFrom, JobSpec, Resolved, ResolvedData, detail_of
from api.core.starts import check_start, find_start
from api.core.strategy import Choice
from api.core.tables import Device
from trainer_core.arguments.resolve import Resolved as Options
from trainer_core.arguments.resolve import resolve as resolve_options
from trainer_core.arguments.table import default_rate
from trainer_core.contract import ParallelSpec
from trainer_core.contract.method_options import OPTIONS
from trainer_core.methods_table import metrics_before_reading
from trainer_core.problems import OptionsInvalid, Problem, show
from trainer_core.steps import StepPlan, plan_steps
from trainer_core.zero.config import ZeroPlan
from trainer_core.zero.config import check as check_spread

DeviceKind = Literal["cpu", "cuda"]

DEFAULT_SEED = 42
MAX_STEPS = 10**12
BODY_ORDER = (
    *(
        "name",
        "model",
        "method",
        *OPTIONS,
        "dataset",
        "adapter",
        "quantization",
        "training",
        "parallel",
        "labels",
        "continue_from",
    ),
    *("depends_on", "time_limit_s", "project", "preemptible", "resources", "stall"),
)


@dataclass(frozen=True)
class Accepted:
    """A body that can run: datasets named by id, and what it was resolved to."""

    spec: JobSpec
    resolved: Resolved


def resolve(session: Session, spec: JobSpec, settings: Settings, *, refuse_misfits: bool = True) -> Accepted:
    """Raises Invalid with every fault in the order of the body, the first one also on top.

    refuse_misfits  whether a job that no strategy fits into the devices is such a fault
    """
    problems: list[Problem] = []
    model = find_model(session, spec.model, problems)
    train = find_dataset(session, "train", spec.dataset.train, problems)
    evaluated = find_dataset(session, "eval", spec.dataset.eval, problems) if spec.dataset.eval else None
    rows_format = format_of(spec, train, evaluated, problems)
    n_train, n_eval = count_rows(spec.dataset, train, evaluated, problems)
    device = spec.resources.device or _device(session)
    options = _options(spec, device, problems)
    choice = estimates.choice_of(session, spec, model, options.values, device) if model and options else None
    asked, spec, options = spec, *_with_choice(spec, choice, options, device, problems if refuse_misfits else [])
    spread = _spread(spec.parallel, options, device, problems, settings)
    plan = _plan(spec, n_train, options, problems) if options and train else None
    problems += [*adapters.problems_of(spec, model, spread, options), *dependencies.check(session, spec.depends_on)]
    if problems or not (model and train and rows_format and options and spread and plan):
        raise refused(problems)
    data = ResolvedData(
        train=resolved_rows(train),
        eval=resolved_rows(evaluated) if evaluated else None,
        format=rows_format,
        n_train_rows=n_train,
        n_eval_rows=n_eval,
        **{name: getattr(spec.dataset, name) for name in ("eval_fraction", "columns", "render", "max_length")},
    )
    resolved = Resolved(
        **spec.blocks(),
        model=resolved_model(model, settings),
        data=data,
        **{name: getattr(spec, name) for name in ("adapter", "quantization")},
        training=options.values,
        parallel=spec.parallel.model_copy(update={"strategy": spread.strategy, "zero_stage": spread.stage}),
        deepspeed=spread.config or None,
        device=device,
        seed=DEFAULT_SEED if options.seed is None else options.seed,
        metric_for_best=options.metric_for_best,
        greater_is_better=options.greater_is_better,
        planned_steps=plan.total_steps,
        steps_per_epoch=plan.steps_per_epoch,
        global_batch_size=plan.global_batch,
        stall=spec.stall,
        notes=[*options.notes, *(choice.notes if choice else ()), *spread.notes, *plan.notes],
    )
    if spec.continue_from is not None:
        resolved = _started(session, spec.continue_from, resolved)
    estimate = estimates.estimate_job(session, resolved, model, spec.resources)
    return Accepted(with_ids(asked, train, evaluated), _estimated(resolved, estimate, is_chosen=choice is not None))


def _estimated(resolved: Resolved, estimate: JobEstimate, *, is_chosen: bool) -> Resolved:
    notes = [*resolved.notes, *([] if is_chosen else estimates.warning(estimate))]
    return resolved.model_copy(update={"estimate": estimate, "notes": notes})


def _with_choice(
    spec: JobSpec, choice: Choice | None, options: Options | None, device: DeviceKind, problems: list[Problem]
) -> tuple[JobSpec, Options | None]:
    """The job with the strategy that auto came to, and its options as they are under it."""
    if choice is None:
        return spec, options
    if choice.problem is not None:
        problems.append(choice.problem)
    spec = spec.model_copy(update={"parallel": choice.strategy.applied(spec.parallel)})
    return spec, options if choice.strategy.name == "ddp" else _options(spec, device, problems)


def refused(problems: list[Problem]) -> Invalid:
    """All problems as one error, in the order of the body."""
    ordered = sorted(problems, key=lambda problem: _place(problem.param))
    details = [detail_of(problem) for problem in ordered]
    first = ordered[0]
    return Invalid(str(first), code=first.code, param=first.param, details=details)


def _place(param: str) -> int:
    head = param.partition(".")[0].partition("[")[0]
    return BODY_ORDER.index(head) if head in BODY_ORDER else len(BODY_ORDER)


def _device(session: Session) -> DeviceKind:
    """CUDA as soon as a node has it: that is where a job will run."""
    has_cuda = session.scalar(select(Device.kind).where(Device.kind == "cuda", Device.is_present.is_(True)).limit(1))
    return "cuda" if has_cuda else "cpu"


def _strategy(parallel: ParallelSpec) -> Literal["ddp", "deepspeed"]:
    """What `auto` stands for, by the rule of trainer_core.zero.config: DeepSpeed as soon as anything of it is asked."""
    if parallel.strategy != "auto":
        return parallel.strategy
    asks = parallel.zero_stage is not None or parallel.offload != "none" or parallel.deepspeed
    return "deepspeed" if asks else "ddp"


def _options(spec: JobSpec, device: DeviceKind, problems: list[Problem]) -> Options | None:
    has_eval = spec.dataset.eval is not None or spec.dataset.eval_fraction is not None
    try:
        return resolve_options(
            spec.training,
            has_eval=has_eval,
            device=device,
            adapter=spec.adapter is not None,
            default_rate=default_rate(spec.adapter.type if spec.adapter else None),
            strategy=_strategy(spec.parallel),
            method=spec.method,
            available_metrics=metrics_before_reading(spec, spec.training),
        )
    except OptionsInvalid as invalid:
        problems += invalid.problems
        return None


def _spread(
    parallel: ParallelSpec, options: Options | None, device: DeviceKind, problems: list[Problem], settings: Settings
) -> ZeroPlan | None:
    """How the run is spread over its processes, with DeepSpeed's whole configuration."""
    try:
        roots = [str(root) for root in settings.nvme_roots]
        return check_spread(parallel, options.values if options else {}, device, nvme_roots=roots)
    except OptionsInvalid as invalid:
        # Without the job's own numbers the block cannot be compared with them; everything else in it can be judged.
        is_clash = [one.code == "conflict" and one.param.startswith("parallel.deepspeed") for one in invalid.problems]
        problems += [one for one, clash in zip(invalid.problems, is_clash, strict=True) if options or not clash]
        return None


def _plan(spec: JobSpec, n_train: int, options: Options, problems: list[Problem]) -> StepPlan | None:
    values = options.values
    try:
        plan = plan_steps(
            n_rows=n_train,
            n_processes=spec.parallel.n_processes,
            per_device_batch=values["per_device_train_batch_size"],
            accumulation=values["gradient_accumulation_steps"],
            epochs=values["num_train_epochs"],
            max_steps=values.get("max_steps"),
            drop_last=bool(values.get("dataloader_drop_last", False)),
            warmup=values.get("warmup_steps", 0),
        )
    except OptionsInvalid as invalid:
        problems += invalid.problems
        return None
    except OverflowError:  # epochs times steps is beyond a float
        plan = None
    if plan is None or plan.total_steps > MAX_STEPS:
        param = "max_steps" if values.get("max_steps", -1) != -1 else "num_train_epochs"
        found = show(values[param])
        message = f"plans more than {MAX_STEPS:,} steps"
        problems.append(Problem(f"training.{param}", message, "out_of_range", "Give a smaller one.", found))
        return None
    return plan


def _started(session: Session, wanted: ContinueFrom, resolved: Resolved) -> Resolved:
    """The same with the checkpoint it starts from. Raises Invalid with everything that keeps it from that."""
    found = find_start(session, wanted)
    if isinstance(found, Problem):
        raise refused([found])
    start, manifest, old = found
    if problems := list(check_start(resolved, start, manifest, old)):
        raise refused(problems)
    return resolved.model_copy(update={"start": start})
