"""Exports: asked for, claimed under a lease by a CPU worker, finished once, read like checkpoints.

States go queued -> running -> succeeded or failed; cancelled from the first two. Every move is a guarded UPDATE with
its event on the job in the same transaction.
"""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from sqlalchemy import ColumnElement, and_, or_, select, update
from sqlalchemy.orm import Session

from api.core import checkpoints, events
from api.core.auth import Actor
from api.core.clean import clean_json
from api.core.db import now
from api.core.errors import Conflict, Invalid, NotFound, Unavailable
from api.core.events import NewEvent
from api.core.export_tables import Export
from api.core.ids import is_id, new_id
from api.core.storage import Pinned, Storage
from trainer_core.contract import Cause, CauseCode, Frozen, ManifestFile
from trainer_core.export.order import ExportDtype, ExportKind, ShardSize, unfit
from trainer_core.numbers import as_whole

MAX_TRIES = 3


class ExportState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN = (ExportState.QUEUED.value, ExportState.RUNNING.value)


def _step_or_word(value: object) -> object:
    return value if value in ("best", "last") else as_whole(value)


class ExportSpec(Frozen):
    """The body of POST /v1/jobs/{id}/exports."""

    checkpoint: Annotated[
        Literal["best", "last"] | Annotated[int, Field(ge=1)],
        BeforeValidator(_step_or_word),
        Field(description="best, last, or a step."),
    ] = "best"
    kind: ExportKind = Field(
        description="adapter: as it is, without optimizer files; merged: base and adapter in one; fp32: from ZeRO's "
        "shards; full: a full fine-tune's weights without optimizer files."
    )
    dtype: ExportDtype = Field(default="auto", description="auto: the precision the weights have already.")
    max_shard_size: Annotated[ShardSize, Field(description="A whole number with KB, MB or GB.")] = "5GB"


def create(session: Session, job_id: str, spec: ExportSpec, actor: Actor) -> Export:
    """Raises NotFound without the checkpoint, Invalid for a kind that it cannot give."""
    listed = checkpoints.pick(session, job_id, str(spec.checkpoint))
    if why := unfit(spec.kind, spec.dtype, listed.manifest):
        raise Invalid(f"step {listed.checkpoint.step}: {why}", code="kind_unfit", param="kind")
    row = Export(
        id=new_id("exp"),
        job_id=job_id,
        step=listed.checkpoint.step,
        kind=spec.kind,
        dtype=spec.dtype,
        max_shard_size=spec.max_shard_size,
        state=ExportState.QUEUED.value,
        created_by=actor.id,
    )
    session.add(row)
    session.flush()
    _tell(session, row, f"Export of step {row.step} as {row.kind} asked for by {actor.name}")
    return row


def listing(session: Session, job_id: str) -> list[Export]:
    """The job's exports, newest first."""
    checkpoints.job_of(session, job_id)
    return list(session.scalars(select(Export).where(Export.job_id == job_id).order_by(Export.id.desc())))


def get(session: Session, job_id: str, export_id: str) -> Export:
    checkpoints.job_of(session, job_id)
    row = session.get(Export, export_id) if is_id(export_id) else None
    if row is None or row.job_id != job_id:
        raise NotFound("the job has no such export")
    return row


def cancel(session: Session, job_id: str, export_id: str, actor: Actor) -> Export:
    """At once: whoever works on it finds out within seconds, and what it made is dropped. Cancelling again is fine."""
    row = get(session, job_id, export_id)
    changed = _move(session, export_id, ExportState.CANCELLED, [Export.state.in_(OPEN)], finished_at=now())
    session.refresh(row)
    if changed:
        _tell(session, row, f"Export of step {row.step} as {row.kind} cancelled by {actor.name}", "warning")
    elif row.state != ExportState.CANCELLED:
        raise Conflict(f"the export has {row.state} already", code="already_finished")
    return row


def delete(session: Session, job_id: str, export_id: str) -> str:
    """Takes a finished export off the list; returns where its files may be, to be removed after the commit."""
    row = get(session, job_id, export_id)
    if row.state in OPEN:
        raise Conflict(f"the export is {row.state}; cancel it first", code="in_use")
    session.delete(row)
    return prefix_of(row)


def prefix_of(row: Export) -> str:
    return f"jobs/{row.job_id}/exports/{row.id}"


# The worker's side


def claim(session: Session, owner: str, lease_s: float, *, at: datetime | None = None) -> Export | None:
    """The oldest export that waits, or whose owner fell silent, for one owner until the lease is over.

    One that was begun MAX_TRIES times fails here with the cause. None: nothing waits.
    """
    instant = at or now()
    waits = _unclaimed(instant)
    chosen = session.scalar(
        select(Export.id).where(waits).order_by(Export.created_at, Export.id).limit(1).with_for_update(skip_locked=True)
    )
    if chosen is None:
        return None
    row = session.get_one(Export, chosen, populate_existing=True)
    if row.n_tries >= MAX_TRIES:
        message = f"The export was begun {MAX_TRIES} times and its worker ended each time before it was done."
        hint = "See the worker's log; a model larger than the host's memory ends like this."
        fail(session, row, Cause(code=CauseCode.INTERNAL, message=message, hint=hint), [waits], at=instant)
        return None
    until = instant + timedelta(seconds=lease_s)
    values = {"owner": owner, "owned_until": until, "n_tries": row.n_tries + 1, "started_at": instant}
    if not _move(session, chosen, ExportState.RUNNING, [waits], **values):
        return None
    session.refresh(row)
    again = "" if row.n_tries == 1 else f", try {row.n_tries} of {MAX_TRIES}"
    _tell(session, row, f"Export of step {row.step} as {row.kind} begun{again}")
    return row


def renew(session: Session, row: Export, owner: str, lease_s: float, messages: list[str]) -> bool:
    """Holds a claim for `lease_s` more and tells what was done since. False: it is not the owner's any more."""
    until = now() + timedelta(seconds=lease_s)
    if not _move(session, row.id, ExportState.RUNNING, _mine(owner), owned_until=until):
        return False
    for message in messages:
        _tell(session, row, f"Export as {row.kind}: {message}")
    return True


def succeed(
    session: Session, row: Export, owner: str, files: list[ManifestFile], proof: dict[str, Any], prefix: str
) -> bool:
    """False, and nothing changed: it was cancelled, or passed to another owner."""
    values = {
        "files": [file.model_dump() for file in files],
        "size_bytes": sum(file.size_bytes for file in files),
        "proof": clean_json(proof),
        "storage_prefix": prefix,
        "finished_at": now(),
    }
    if not _move(session, row.id, ExportState.SUCCEEDED, _mine(owner), **values):
        return False
    _tell(session, row, f"Export of step {row.step} as {row.kind} is ready and proved: {values['size_bytes']:,} bytes")
    return True


def fail(
    session: Session, row: Export, cause: Cause, conditions: list[ColumnElement[bool]], *, at: datetime | None = None
) -> bool:
    kept = clean_json(cause.model_dump(mode="json", exclude_none=True))
    if not _move(session, row.id, ExportState.FAILED, conditions, cause=kept, finished_at=at or now()):
        return False
    _tell(session, row, f"Export of step {row.step} as {row.kind} failed: {cause.message}", "error")
    return True


def fail_mine(session: Session, row: Export, owner: str, cause: Cause) -> bool:
    return fail(session, row, cause, _mine(owner))


def give_back(session: Session, row: Export, owner: str) -> None:
    """Free for the next try at once."""
    _move(session, row.id, ExportState.QUEUED, _mine(owner), owner=None, owned_until=None)


# Files


def pin_file(storage: Storage, row: Export, path: str) -> tuple[Pinned, ManifestFile]:
    """One file of a finished export, held open. Raises NotFound for what is not on its list."""
    for file in map(ManifestFile.model_validate, row.files):
        if file.path == path:
            return _pinned(storage, f"{row.storage_prefix}/{path}", file), file
    raise NotFound("no such file")


def pin_all(storage: Storage, row: Export) -> list[tuple[str, Pinned]]:
    """Every file, all held open: none can go while the others are being sent."""
    if row.state != ExportState.SUCCEEDED:
        raise NotFound(f"the export has no files: it is {row.state}")
    with ExitStack() as opened:
        pinned = [(file["path"], opened.enter_context(pin_file(storage, row, file["path"])[0])) for file in row.files]
        opened.pop_all()
    return pinned


def _pinned(storage: Storage, key: str, file: ManifestFile) -> Pinned:
    pinned = storage.pin(key)
    if pinned.size_bytes != file.size_bytes:
        pinned.close()
        raise Unavailable(f"{file.path} was changed after it was exported and is not sent", code="storage_changed")
    return pinned


# Rows


def _unclaimed(at: datetime) -> ColumnElement[bool]:
    silent = and_(Export.state == ExportState.RUNNING.value, Export.owned_until <= at)
    return or_(Export.state == ExportState.QUEUED.value, silent)


def _mine(owner: str) -> list[ColumnElement[bool]]:
    return [Export.state == ExportState.RUNNING.value, Export.owner == owner]


def _move(
    session: Session, export_id: str, to: ExportState, conditions: list[ColumnElement[bool]], **values: Any
) -> bool:
    moved = session.scalars(
        update(Export)
        .where(Export.id == export_id, *conditions)
        .values(state=to.value, **values)
        .returning(Export.id)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    return moved is not None


def _tell(session: Session, row: Export, message: str, level: str = "info") -> None:
    data = {"export": row.id, "kind": row.kind, "step": row.step}
    events.append(session, row.job_id, [NewEvent("export", message, level=level, data=data)])
