"""A job whose run was out of memory is tried again one rung down the ladder: its resolved options change, as is said.

The job's own body stays what was sent. A rung that the job's method, adapter or DeepSpeed block forbids is passed over.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sqlalchemy.orm import Session

from api.core import adapters, estimates
from api.core.events import NewEvent
from api.core.specs import JobSpec, Resolved
from api.core.tables import BaseModel, Job
from trainer_core.arguments.resolve import Resolved as Options
from trainer_core.contract import Cause, CauseCode
from trainer_core.contract.method_options import PreferenceOptions
from trainer_core.memory.ladder import Rung, rungs_below
from trainer_core.problems import OptionsInvalid
from trainer_core.zero.config import ZeroPlan
from trainer_core.zero.config import check as check_spread


@dataclass(frozen=True)
class Adapted:
    """The options of the next try, and what is told of them."""

    resolved: Resolved
    event: NewEvent


def step_down(session: Session, job: Job, cause: Cause) -> Adapted | None:
    """None: it was not out of device memory, the job forbids it, or the ladder has no rung left for it."""
    if not _is_out_of_memory(cause.code, job.resolved):
        return None
    resolved = Resolved.model_validate(job.resolved)
    if resolved.parallel.on_out_of_memory == "fail":
        return None
    spec = JobSpec.model_validate(job.spec) if job.spec else None
    model = session.get(BaseModel, resolved.model.id)
    for rung in rungs_below(resolved.training, resolved.parallel, resolved.device):
        spread = _spread(rung, resolved)
        if spread is None or not _is_allowed(rung, spread, resolved, spec, model):
            continue
        new = _applied(rung, spread, resolved)
        if model is not None and spec is not None:
            new = new.model_copy(update={"estimate": estimates.estimate_job(session, new, model, spec.resources)})
        return Adapted(new, _event(rung, cause))
    return None


def _is_out_of_memory(code: CauseCode, resolved: dict[str, object]) -> bool:
    """On CPU devices the host's memory is the device's."""
    return code is CauseCode.GPU_OOM or (code is CauseCode.HOST_OOM and resolved.get("device") == "cpu")


def _spread(rung: Rung, resolved: Resolved) -> ZeroPlan | None:
    try:
        # A path for NVMe was looked at when the job was accepted.
        return check_spread(rung.parallel, rung.training, resolved.device, nvme_roots=None)
    except OptionsInvalid:
        return None


def _is_allowed(
    rung: Rung, spread: ZeroPlan, resolved: Resolved, spec: JobSpec | None, model: BaseModel | None
) -> bool:
    if not rung.keeps_states and resolved.start is not None and resolved.start.mode == "full":
        return False  # it goes on with another job's optimizer states, which are cut to the strategy
    options = resolved.options
    if spread.stage == 3 and isinstance(options, PreferenceOptions) and options.has_reference:
        return False
    if spec is None:
        return True
    asked = spec.model_copy(update={"parallel": rung.parallel, "training": rung.training})
    values = Options(
        values=rung.training,
        seed=resolved.seed,
        metric_for_best=resolved.metric_for_best,
        greater_is_better=resolved.greater_is_better,
        notes=[],
    )
    return not adapters.problems_of(asked, model, spread, values)


def _applied(rung: Rung, spread: ZeroPlan, resolved: Resolved) -> Resolved:
    return resolved.model_copy(
        update={
            "training": rung.training,
            "parallel": rung.parallel.model_copy(update={"strategy": spread.strategy, "zero_stage": spread.stage}),
            "deepspeed": spread.config or None,
            "estimate": None,
            "notes": [*resolved.notes, f"After running out of memory: {_words(rung)}."],
        }
    )


def _event(rung: Rung, cause: Cause) -> NewEvent:
    goes_on = (
        "It goes on from its newest checkpoint"
        if rung.keeps_states
        else "Optimizer states saved under another strategy or stage do not fit, so it begins anew unless it has "
        "checkpoints of this one"
    )
    message = f"Out of memory; tried again with {_words(rung)}. The global batch is unchanged. {goes_on}."
    data = {"rung": rung.name, "changes": [asdict(change) for change in rung.changes], "cause": cause.message}
    return NewEvent("adapted", message, level="warning", data=data)


def _words(rung: Rung) -> str:
    return f"{rung.name.replace('_', ' ')}: {', '.join(map(str, rung.changes))}"
