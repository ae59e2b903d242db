"""Who answers for a name, as every face takes it: a base model, a job, or `ft:...` with a checkpoint or without."""

from __future__ import annotations

from sqlalchemy.orm import Session

from api.core.answering import Answering, resolve, resolve_tuned
from api.openai import names


def named(session: Session, name: str, checkpoint: str = "best") -> Answering:
    """Raises NotFound, or Invalid for a model that is not finished or writes no text."""
    found = names.tuned(name)
    if found is not None:
        return resolve_tuned(session, name, found.job_id, found.step)
    return resolve(session, name, checkpoint)
