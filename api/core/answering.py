"""Which model answers: a registered base model, a job, or a fine-tuned model's name; and what an engine needs of it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from api.core import checkpoints, fine_tunes, models
from api.core.checkpoints import Listed
from api.core.errors import Invalid, NotFound
from api.core.ids import is_id
from api.core.tables import Job
from trainer_core.methods_table import METHODS
from trainer_core.serve.order import Variant

ENGINE_KINDS = ("causal", "seq2seq")


@dataclass(frozen=True)
class Answering:
    """What was named, and the variant that answers for the name."""

    target: str
    name: str
    variant: Variant


def resolve(session: Session, name: str, checkpoint: str = "best") -> Answering:
    """`name`: a registered model's name or id, a job's id, or `ft:...`. Raises NotFound, Invalid."""
    if name.startswith("job_") and is_id(name):
        return _of_job(checkpoints.job_of(session, name), _pick(session, name, checkpoint))
    try:
        model = models.get(session, name)
    except NotFound as missing:
        raise NotFound(missing.message, code="model_not_found", param="model") from missing
    return Answering(f"model:{model.id}", model.name, "base")


def resolve_tuned(session: Session, name: str, job_id: str, step: int | None) -> Answering:
    """The same for a fine-tuned model's name. Raises Invalid where its job is not over, NotFound without a model."""
    job = session.get(Job, job_id) if is_id(job_id) else None
    if job is not None and step is None and job.state not in ("succeeded", "failed", "cancelled"):
        message = f"the model {name[:200]!r} is not finished: its job is {job.state}; name a checkpoint of it, or wait"
        raise Invalid(message, code="model_not_ready", param="model")
    tuned, listed = fine_tunes.find_model(session, name, job_id, step)
    return _of_job(tuned.job, listed)


def _pick(session: Session, job_id: str, which: str) -> Listed:
    """The checkpoint; where none is best, as without an evaluation, `best` is the last."""
    try:
        return checkpoints.pick(session, job_id, which)
    except NotFound as missing:
        if which == "best" and checkpoints.listing(session, job_id):
            return checkpoints.pick(session, job_id, "last")
        raise NotFound(missing.message, code="no_such_checkpoint", param="checkpoint") from missing


def _of_job(job: Job, listed: Listed) -> Answering:
    method = next((one for one in METHODS.values() if one.name == job.method), None)
    if method is None or method.kind not in ENGINE_KINDS:
        message = f"the job {job.id} trained a {job.method} model, which writes no text; name a model that does"
        raise Invalid(message, code="model_writes_no_text", param="model")
    step = listed.checkpoint.step
    return Answering(f"job:{job.id}:{step}", f"{job.name}, step {step}", "tuned")
