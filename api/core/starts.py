"""Where a job starts when it continues an earlier one, and every reason why it cannot go on from there.

A full continuation takes optimizer, schedule, data position and step numbers over: all that shaped them must be equal.
Starting from the weights alone is always the way out, and is offered.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy.orm import Session

from api.core import checkpoints
from api.core.errors import NotFound
from api.core.ids import is_id
from api.core.specs import ContinueFrom, Resolved, ResolvedStart
from api.core.tables import Job
from trainer_core.contract import Manifest
from trainer_core.contract.adapters import describe
from trainer_core.problems import Problem, show

OPEN_ENDED_SCHEDULES = frozenset({"constant", "constant_with_warmup"})
WEIGHTS_ONLY = 'Start from the weights alone: continue_from.mode "weights".'


def find_start(session: Session, wanted: ContinueFrom) -> tuple[ResolvedStart, Manifest, Resolved] | Problem:
    """The checkpoint, its manifest, and what its job was resolved to; or why there is none."""
    job = session.get(Job, wanted.job) if is_id(wanted.job) else None
    if job is None:
        return Problem("continue_from.job", "there is no such job", "not_found", found=show(wanted.job))
    try:
        listed = checkpoints.pick(session, job.id, str(wanted.checkpoint))
    except NotFound as error:
        steps = [str(one.checkpoint.step) for one in checkpoints.listing(session, job.id)]
        hint = f"It has: {', '.join(steps[-10:])}." if steps else f"The job is {job.state} and has none."
        return Problem("continue_from.checkpoint", error.message, "not_found", hint, show(wanted.checkpoint))
    start = ResolvedStart(
        job_id=job.id,
        checkpoint_id=listed.checkpoint.id,
        step=listed.checkpoint.step,
        mode=wanted.mode,
        storage_prefix=listed.checkpoint.storage_prefix,
        manifest_sha256=listed.checkpoint.manifest_sha256,
    )
    return start, listed.manifest, Resolved.model_validate(job.resolved)


def check_start(new: Resolved, start: ResolvedStart, manifest: Manifest, old: Resolved) -> Iterator[Problem]:
    """What keeps the resolved job from starting there."""
    yield from _same_weights(new, old)
    if start.mode == "full":
        yield from _same_ranks(new, manifest)
        yield from _same_data(new, old)
        yield from _steps_left(new, manifest)


def _same_weights(new: Resolved, old: Resolved) -> Iterator[Problem]:
    if (new.model.source, new.model.revision) != (old.model.source, old.model.revision):
        yield Problem(
            "model",
            f"the checkpoint was trained from {old.model.name}",
            "conflict",
            "Name the same model.",
            show(new.model.name),
        )
    if (new.adapter, new.quantization) != (old.adapter, old.quantization):
        was = describe(old.adapter)
        yield Problem(
            "adapter",
            f"the checkpoint holds {was} with other settings than this job's",
            "conflict",
            "Take the adapter block, and quantization, of the earlier job.",
        )


def _same_ranks(new: Resolved, manifest: Manifest) -> Iterator[Problem]:
    here, saved = new.parallel.n_processes, manifest.world_size
    if here != saved:
        yield Problem(
            "parallel.n_processes",
            f"the checkpoint was saved by {saved} processes and this job has {here}: optimizer states are cut to them",
            "world_size_mismatch",
            f"Use {saved} processes. {WEIGHTS_ONLY}",
            show(here),
        )
    stage = new.parallel.zero_stage if new.parallel.strategy == "deepspeed" else None
    if (new.parallel.strategy, stage) != (manifest.strategy, manifest.zero_stage):
        was = manifest.strategy + ("" if manifest.zero_stage is None else f" with ZeRO stage {manifest.zero_stage}")
        yield Problem(
            "parallel.strategy",
            f"the checkpoint was saved under {was}; its optimizer states fit nothing else",
            "conflict",
            f"Use the same strategy. {WEIGHTS_ONLY}",
            show(new.parallel.strategy),
        )


def _same_data(new: Resolved, old: Resolved) -> Iterator[Problem]:
    shape = ("eval_fraction", "format", "columns", "render", "max_length")
    if new.data.train.sha256 != old.data.train.sha256:
        message = "the checkpoint was trained on other rows: its position in the data means nothing here"
        yield Problem("dataset.train", message, "conflict", WEIGHTS_ONLY, show(new.data.train.name))
    for name in shape:
        mine, its = getattr(new.data, name), getattr(old.data, name)
        if mine != its and name != "format":
            message = f"differs from the earlier job, which had {show(its)}"
            yield Problem(f"dataset.{name}", message, "conflict", WEIGHTS_ONLY, show(mine))
    if new.global_batch_size != old.global_batch_size:
        message = f"{new.global_batch_size} rows a step, and the earlier job had {old.global_batch_size}"
        yield Problem("training.per_device_train_batch_size", message, "conflict", WEIGHTS_ONLY)


def _steps_left(new: Resolved, manifest: Manifest) -> Iterator[Problem]:
    total, schedule = new.planned_steps, str(new.training.get("lr_scheduler_type", "linear"))
    if manifest.step >= total:
        yield Problem(
            "training.max_steps",
            f"the checkpoint is at step {manifest.step} and this plan ends at step {total}: nothing is left to do",
            "no_steps",
            f"Plan for more than {manifest.step} steps, with a schedule that allows it. {WEIGHTS_ONLY}",
            str(total),
        )
    elif manifest.total_steps != total and schedule not in OPEN_ENDED_SCHEDULES:
        yield Problem(
            "training.lr_scheduler_type",
            f"the {schedule} schedule depends on the number of steps, which was {manifest.total_steps} and is {total} "
            "now: the learning rate would jump",
            "schedule_changed",
            f"Keep {manifest.total_steps} steps, or use constant or constant_with_warmup in both. {WEIGHTS_ONLY}",
            schedule,
        )
