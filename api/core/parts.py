"""Files that come in parts: announced, sent piece by piece, put together in the order that is asked for.

Parts lie in storage under their upload's id. What expired is removed when the next upload is announced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from api.core.db import now
from api.core.errors import Conflict, Invalid, NotFound, TooLarge
from api.core.ids import is_id, new_id
from api.core.names import shown_name
from api.core.openai_tables import Upload, UploadPart
from api.core.settings import Settings
from api.core.storage import Storage

LIVES = timedelta(hours=1)
MAX_PART_BYTES = 64 * 1024**2
MAX_PARTS = 10_000


def prefix(upload_id: str) -> str:
    return f"uploads/{upload_id}"


def announce(
    session: Session, filename: str, size_bytes: int, purpose: str, mime_type: str, actor_id: str, settings: Settings
) -> Upload:
    if size_bytes > settings.max_upload_bytes:
        raise TooLarge(
            f"{size_bytes} bytes are announced, and {settings.max_upload_bytes} are allowed here (max_upload_bytes)",
            code="upload_too_large",
            param="bytes",
        )
    upload = Upload(
        id=new_id("upload"),
        filename=shown_name(filename),
        purpose=purpose,
        mime_type=mime_type,
        size_bytes=size_bytes,
        state="pending",
        part_ids=[],
        created_by=actor_id,
        created_at=now(),
        expires_at=now() + LIVES,
    )
    session.add(upload)
    session.flush()
    return upload


def expire(session: Session) -> list[str]:
    """Close what is past its time; the ids whose parts are to be removed once this is committed."""
    closed = session.scalars(
        update(Upload)
        .where(Upload.state == "pending", Upload.expires_at <= now())
        .values(state="expired")
        .returning(Upload.id)
        .execution_options(synchronize_session=False)
    )
    return list(closed)


def get(session: Session, upload_id: str) -> Upload:
    upload = session.get(Upload, upload_id) if is_id(upload_id) else None
    if upload is None:
        raise NotFound("there is no such upload", param="upload_id")
    return upload


def state_of(upload: Upload) -> str:
    is_late = upload.state == "pending" and upload.expires_at <= now()
    return "expired" if is_late else upload.state


def open_one(session: Session, upload_id: str) -> Upload:
    """The upload as long as it takes parts. Raises Conflict when it is over."""
    upload = get(session, upload_id)
    if (state := state_of(upload)) != "pending":
        raise Conflict(f"the upload is {state}; announce a new one", code="upload_not_pending", param="upload_id")
    return upload


def keep(storage: Storage, upload_id: str, file: Path) -> tuple[str, int]:
    """Store a part that was received: its id and size. Not inside a transaction."""
    size = file.stat().st_size
    if size > MAX_PART_BYTES:
        raise TooLarge(f"a part has at most {MAX_PART_BYTES} bytes, found {size}", code="part_too_large", param="data")
    part_id = new_id("part")
    storage.put(f"{prefix(upload_id)}/{part_id}", file)
    return part_id, size


def add(session: Session, upload_id: str, part_id: str, size_bytes: int) -> UploadPart:
    """List a stored part. Raises Conflict when the upload ended meanwhile, or has too many parts."""
    upload = open_one(session, upload_id)
    known = session.scalars(select(UploadPart.id).where(UploadPart.upload_id == upload.id).limit(MAX_PARTS)).all()
    if len(known) >= MAX_PARTS:
        raise Conflict(f"an upload has at most {MAX_PARTS} parts; send larger ones", code="too_many_parts")
    part = UploadPart(id=part_id, upload_id=upload.id, size_bytes=size_bytes, created_at=now())
    session.add(part)
    session.flush()
    return part


def check(session: Session, upload: Upload, part_ids: Sequence[str]) -> None:
    """Raises Invalid unless the parts are all this upload's, each named once, and add up to what was announced."""
    known = select(UploadPart.id, UploadPart.size_bytes).where(UploadPart.upload_id == upload.id)
    sizes: dict[str, int] = {row.id: row.size_bytes for row in session.execute(known)}
    if unknown := [part_id for part_id in part_ids if part_id not in sizes]:
        raise Invalid(f"the upload has no part {unknown[0][:60]!r}", code="part_unknown", param="part_ids")
    if len(set(part_ids)) != len(part_ids) or not part_ids:
        raise Invalid("expected every part once, and one at least", code="part_repeated", param="part_ids")
    total = sum(sizes[part_id] for part_id in part_ids)
    if total != upload.size_bytes:
        raise Invalid(
            f"the parts have {total} bytes together, and {upload.size_bytes} were announced; send what is missing",
            code="upload_incomplete",
            param="part_ids",
        )


def join(storage: Storage, upload_id: str, part_ids: Sequence[str], target: Path, md5: str | None) -> None:
    """Write the parts into one file, in the order given. Raises Invalid when its MD5 is not the one that was sent."""
    digest = hashlib.md5(usedforsecurity=False)
    with target.open("wb") as out:
        for part_id in part_ids:
            for chunk in storage.open(f"{prefix(upload_id)}/{part_id}"):
                digest.update(chunk)
                out.write(chunk)
    if md5 is not None and digest.hexdigest() != md5.strip().lower():
        raise Invalid(f"the parts' MD5 is {digest.hexdigest()}, and {md5[:64]!r} was sent", code="md5", param="md5")


def complete(session: Session, upload_id: str, part_ids: Sequence[str], dataset_id: str) -> bool:
    """Pending to completed, for one caller; False: another was first, or it was cancelled meanwhile."""
    return _leave_pending(session, upload_id, state="completed", part_ids=list(part_ids), dataset_id=dataset_id)


def cancel(session: Session, upload_id: str) -> Upload:
    """Raises Conflict when it is over in another way; cancelling twice is fine."""
    upload = get(session, upload_id)
    if not _leave_pending(session, upload_id, state="cancelled") and upload.state != "cancelled":
        raise Conflict(f"the upload is {state_of(upload)} already", code="upload_not_pending", param="upload_id")
    session.refresh(upload)
    return upload


def _leave_pending(session: Session, upload_id: str, **values: object) -> bool:
    changed = session.execute(
        update(Upload)
        .where(Upload.id == upload_id, Upload.state == "pending")
        .values(**values)
        .returning(Upload.id)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    return changed is not None
