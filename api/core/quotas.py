"""Limits of projects and users: kept in a table, defaults from the settings, checked at submit and at placement.

A project is a name that jobs carry; a user is the API key that made them. Counting happens under the account's row, so
two requests at the same moment cannot both take the last place.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field
from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.orm import Session

from api.core.db import now
from api.core.errors import Conflict, Invalid, NotFound
from api.core.planning.model import Account, Limits, Scope
from api.core.quota_tables import Quota
from api.core.settings import Settings
from api.core.states import ON_DEVICES, State
from api.core.tables import Job
from api.core.upserts import insert_missing
from trainer_core.contract import Frozen

WAITING = (State.VALIDATING, State.QUEUED, State.PAUSED)
SCOPES: tuple[Scope, Scope] = ("project", "user")


class QuotaSpec(Frozen):
    """Limits of one project or user, as a whole; null leaves a limit to the settings."""

    devices: int | None = Field(default=None, ge=0, le=10**6, description="Devices held at once.")
    running: int | None = Field(default=None, ge=0, le=10**6, description="Jobs running at once.")
    queued: int | None = Field(default=None, ge=0, le=10**6, description="Jobs waiting; further ones are refused.")
    device_hours: float | None = Field(default=None, ge=0, le=10**9, description="Device-hours in the window.")
    weight: float = Field(default=1.0, ge=0.001, le=1000, description="Weight of a project in fair shares.")


def listing(session: Session) -> list[Quota]:
    """Every project and user with limits of its own."""
    rows = session.scalars(select(Quota).order_by(Quota.scope, Quota.name))
    return [row for row in rows if row.weight != 1.0 or any(limit is not None for limit in _own_limits(row))]


def put(session: Session, account: Account, spec: QuotaSpec) -> Quota:
    """Sets the account's limits as a whole."""
    if account[0] == "user" and spec.weight != 1.0:
        raise Invalid("shares are between projects; a user has no weight", param="weight")
    row = _locked(session, account)
    for name, value in spec.model_dump().items():
        setattr(row, name, value)
    row.updated_at = now()
    session.flush()
    return row


def remove(session: Session, account: Account) -> None:
    """Back to the settings. Raises NotFound where it had no limits of its own."""
    scope, name = account
    gone = session.scalars(
        delete(Quota).where(Quota.scope == scope, Quota.name == name).returning(Quota.name)
    ).one_or_none()
    if gone is None:
        raise NotFound(f"{scope} {name!r} has no limits of its own")


def defaults(settings: Settings) -> dict[Scope, Limits]:
    """What the settings allow where a project or user has nothing of its own."""
    return {
        "project": Limits(
            settings.project_max_devices,
            settings.project_max_running,
            settings.project_max_queued,
            settings.project_max_device_hours,
        ),
        "user": Limits(
            settings.user_max_devices,
            settings.user_max_running,
            settings.user_max_queued,
            settings.user_max_device_hours,
        ),
    }


def limits_of(rows: list[Quota], settings: Settings) -> dict[Account, Limits]:
    """The limits of every account that has a row, with what it leaves open taken from the settings."""
    default = defaults(settings)
    return {(scope, row.name): _over(row, default[scope]) for row in rows for scope in SCOPES if row.scope == scope}


def _over(row: Quota | None, default: Limits) -> Limits:
    if row is None:
        return default
    own = _own_limits(row)
    return Limits(
        default.devices if own.devices is None else own.devices,
        default.running if own.running is None else own.running,
        default.queued if own.queued is None else own.queued,
        default.device_hours if own.device_hours is None else own.device_hours,
    )


def _own_limits(row: Quota) -> Limits:
    return Limits(row.devices, row.running, row.queued, row.device_hours)


def check_submit(session: Session, project: str, user: str, n_devices: int, settings: Settings) -> None:
    """Raises Conflict (`limit_reached`) where as many jobs wait as may, or the job alone is over the devices' limit."""
    for account, limits in _own(session, project, user, settings):
        if limits.devices is not None and n_devices > limits.devices:
            message = f"asks for {n_devices} devices, and {_who(account)} may hold {limits.devices} at once"
            raise Conflict(message, code="limit_reached", param="parallel.n_processes")
        if limits.queued is None:
            continue
        _locked(session, account)
        n_waiting = session.scalar(select(func.count()).where(Job.state.in_(WAITING), _of(account)))
        if (n_waiting or 0) >= limits.queued:
            message = f"{n_waiting} jobs of {_who(account)} wait already, as many as may ({limits.queued}): try later"
            raise Conflict(message, code="limit_reached")


def allows_start(session: Session, job_id: str, settings: Settings) -> bool:
    """Whether the job is within the limits of devices and running jobs, counted under a lock until the commit."""
    job = session.execute(select(Job.project, Job.created_by, Job.n_devices).where(Job.id == job_id)).one_or_none()
    if job is None:
        return False
    for account, limits in _own(session, job.project, job.created_by, settings):
        if limits.devices is None and limits.running is None:
            continue
        _locked(session, account)
        counted = select(func.count(), func.coalesce(func.sum(Job.n_devices), 0))
        n_running, n_devices = session.execute(counted.where(Job.state.in_(sorted(ON_DEVICES)), _of(account))).one()
        if limits.devices is not None and n_devices + job.n_devices > limits.devices:
            return False
        if limits.running is not None and n_running >= limits.running:
            return False
    return True


def _own(session: Session, project: str, user: str, settings: Settings) -> Iterator[tuple[Account, Limits]]:
    accounts: tuple[Account, Account] = (("project", project), ("user", user))
    for account in accounts:
        yield account, _over(session.get(Quota, account), defaults(settings)[account[0]])


def _locked(session: Session, account: Account) -> Quota:
    scope, name = account
    insert_missing(session, Quota, [{"scope": scope, "name": name, "weight": 1.0, "updated_at": now()}])
    return session.get_one(Quota, account, with_for_update=True, populate_existing=True)


def _of(account: Account) -> ColumnElement[bool]:
    scope, name = account
    return Job.project == name if scope == "project" else Job.created_by == name


def _who(account: Account) -> str:
    return f"project {account[1]}" if account[0] == "project" else "this API key"
