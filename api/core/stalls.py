"""How long a run may be silent, and what follows: a job's own word over the operator's."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from sqlalchemy import update
from sqlalchemy.orm import Session

from api.core import events
from api.core.events import NewEvent
from api.core.fencing import live
from api.core.settings import Settings
from api.core.states import Health
from api.core.tables import Job
from trainer_core.contract import Frozen
from trainer_core.numbers import PositiveWholeNumber

Limit = Annotated[PositiveWholeNumber, Field(le=10**7)]


class StallSpec(Frozen):
    """`stall` of a job's body."""

    after_s: Limit | None = Field(
        default=None, description="Seconds without a step or an evaluated batch; null: the setting stall_after_s."
    )
    slow_after_s: Limit | None = Field(
        default=None,
        description="The same where nothing can be heard for long: loading, a first step, saving; null: the setting "
        "stall_slow_after_s.",
    )
    action: Literal["stop", "flag"] = Field(
        default="stop", description="stop: the attempt ends with cause stalled; flag: it is only told of."
    )


class StallLimits(Frozen):
    """The same with nothing left open, as a run's supervisor keeps to it."""

    after_s: float = 900.0
    slow_after_s: float = 3600.0
    stops: bool = True


def limits_of(spec: StallSpec, settings: Settings) -> StallLimits:
    """A job's own limit for steps also raises the other, which is never the shorter of the two by default."""
    after_s = float(spec.after_s or settings.stall_after_s)
    slow_after_s = float(spec.slow_after_s or max(settings.stall_slow_after_s, after_s))
    return StallLimits(after_s=after_s, slow_after_s=slow_after_s, stops=spec.action == "stop")


def tell(session: Session, attempt_id: str, event: NewEvent, health: Health) -> None:
    """The run has gone silent, or moves again: an event, and the job's health. Raises Lost."""
    _attempt, job = live(session, attempt_id)
    events.append(session, job.id, [event])
    session.execute(
        update(Job).where(Job.id == job.id).values(health=health.value).execution_options(synchronize_session=False)
    )
    session.expire(job)
