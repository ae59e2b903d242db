"""Uploads in parts as OpenAI's clients send them; the completed one is a file like any other."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Request
from pydantic import Field, StringConstraints

from api import uploads
from api.core import datasets, parts
from api.core.auth import Actor, Permission
from api.core.errors import Conflict
from api.deps import Parts, PartsDep, StorageDep, WriteSession, after_commit, allow
from api.forms import Fields
from api.openai import objects
from api.openai.files import check_purpose, no_expiry
from api.openai.objects import Object
from api.routes.datasets import CHECKERS
from trainer_core.contract import Frozen
from trainer_core.numbers import PositiveWholeNumber

router = APIRouter(prefix="/openai/v1/uploads", include_in_schema=False)

FORM = Fields(file="data", texts=())
Writer = Annotated[Actor, allow(Permission.DATASETS_WRITE)]
PartId = Annotated[str, StringConstraints(min_length=1, max_length=60)]


class CreateUpload(Frozen):
    filename: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    purpose: Annotated[str, StringConstraints(max_length=40)]
    bytes: PositiveWholeNumber
    mime_type: Annotated[str, StringConstraints(max_length=200)]
    expires_after: dict[str, Any] | None = None


class CompleteUpload(Frozen):
    part_ids: Annotated[list[PartId], Field(max_length=parts.MAX_PARTS)]
    md5: Annotated[str, StringConstraints(max_length=100)] | None = None


@router.post("")
def create_upload(body: CreateUpload, session: WriteSession, service: PartsDep, actor: Writer) -> Object:
    check_purpose(body.purpose)
    if body.expires_after is not None:
        raise no_expiry()
    for upload_id in parts.expire(session):
        after_commit(session, partial(service.storage.delete_prefix, parts.prefix(upload_id)))
    announced = body.filename, body.bytes, body.purpose, body.mime_type
    return objects.upload(parts.announce(session, *announced, actor.id, service.settings))


@router.post("/{upload_id}/parts")
async def create_part(upload_id: str, request: Request, service: PartsDep, _actor: Writer) -> Object:
    await to_thread.run_sync(_check_open, service, upload_id)
    async with uploads.private_folder(service.settings.incoming_dir) as folder:
        received = await uploads.receive(request, folder, service.settings, FORM)
        return await to_thread.run_sync(_keep_part, service, upload_id, received.path)


def _check_open(service: Parts, upload_id: str) -> None:
    with service.database.reading() as session:
        parts.open_one(session, upload_id)


def _keep_part(service: Parts, upload_id: str, file: Path) -> Object:
    part_id, size = parts.keep(service.storage, upload_id, file)
    try:
        with service.database.session() as session:
            return objects.part(parts.add(session, upload_id, part_id, size))
    except BaseException:
        service.storage.delete_prefix(f"{parts.prefix(upload_id)}/{part_id}")
        raise


@router.post("/{upload_id}/complete")
async def complete_upload(upload_id: str, body: CompleteUpload, service: PartsDep, actor: Writer) -> Object:
    """Put the parts together and check every row. A repeat of what completed it gets the same answer; a file that is
    refused leaves the upload as it was."""
    async with uploads.private_folder(service.settings.incoming_dir) as folder:
        return await to_thread.run_sync(_complete, service, upload_id, body, folder, actor, limiter=CHECKERS)


def _complete(service: Parts, upload_id: str, body: CompleteUpload, folder: Path, actor: Actor) -> Object:
    with service.database.reading() as session:
        upload = parts.get(session, upload_id)
        if upload.state == "completed":
            return _completed(service, upload_id, body)
        parts.check(session, parts.open_one(session, upload_id), body.part_ids)
    sent = folder / "sent"
    parts.join(service.storage, upload_id, body.part_ids, sent, body.md5)
    stored = datasets.store(service.storage, service.settings, sent, upload.filename)
    try:
        with service.database.session() as session:
            dataset = datasets.add(session, stored, actor.id)
            if not parts.complete(session, upload_id, body.part_ids, dataset.id):
                raise Conflict("the upload was ended meanwhile", code="upload_not_pending", param="upload_id")
    except Conflict:
        datasets.discard(service.storage, stored)
        return _completed(service, upload_id, body)
    except BaseException:
        datasets.discard(service.storage, stored)
        raise
    service.storage.delete_prefix(parts.prefix(upload_id))
    return _completed(service, upload_id, body)


def _completed(service: Parts, upload_id: str, body: CompleteUpload) -> Object:
    """The upload that these parts completed, by this request or one before. Raises Conflict for any other."""
    with service.database.reading() as session:
        upload = parts.get(session, upload_id)
        if upload.state != "completed" or upload.dataset_id is None or upload.part_ids != body.part_ids:
            message = f"the upload is {parts.state_of(upload)} already; announce a new one"
            raise Conflict(message, code="upload_not_pending", param="upload_id")
        return objects.upload(upload, datasets.get(session, upload.dataset_id))


@router.post("/{upload_id}/cancel")
def cancel_upload(upload_id: str, session: WriteSession, storage: StorageDep, _actor: Writer) -> Object:
    upload = parts.cancel(session, upload_id)
    after_commit(session, partial(storage.delete_prefix, parts.prefix(upload.id)))
    return objects.upload(upload)
