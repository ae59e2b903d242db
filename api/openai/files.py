"""Files as OpenAI's clients send and read them: a dataset with the same strict checks, or a job's results."""

from __future__ import annotations

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response

from api import uploads
from api.core import datasets, file_listing, result_files
from api.core.auth import Actor, Permission
from api.core.errors import Conflict, Invalid, NotFound
from api.core.file_listing import Order
from api.core.names import dataset_prefix
from api.core.storage import Storage
from api.core.tables import Dataset, Job
from api.deps import Parts, PartsDep, ReadSession, StorageDep, WriteSession, after_commit, allow
from api.downloads import Download, answer, file_name
from api.forms import Fields
from api.openai import names, objects
from api.openai.objects import Object
from api.routes.datasets import CHECKERS
from api.uploads import Received

router = APIRouter(prefix="/openai/v1/files", include_in_schema=False)

FORM = Fields(texts=("purpose", "expires_after[anchor]", "expires_after[seconds]"))
PURPOSE, RESULTS = "fine-tune", "fine-tune-results"
Reader = Annotated[Actor, allow(Permission.DATASETS_READ)]
Writer = Annotated[Actor, allow(Permission.DATASETS_WRITE)]


@router.post("")
async def create_file(request: Request, parts: PartsDep, actor: Writer) -> Object:
    """Every row is checked before the answer; a file with a bad one is refused with its lines and not kept."""
    async with uploads.private_folder(parts.settings.incoming_dir) as folder:
        received = await uploads.receive(request, folder, parts.settings, FORM)
        check_purpose(received.texts.get("purpose"))
        if any(name.startswith("expires_after") for name in received.texts):
            raise no_expiry()
        return objects.file(await to_thread.run_sync(keep, parts, received, actor, limiter=CHECKERS))


def check_purpose(purpose: str | None) -> None:
    if purpose != PURPOSE:
        found = "none" if purpose is None else repr(purpose[:60])
        raise Invalid(f"files are kept for the purpose 'fine-tune' here, found {found}", param="purpose")


def no_expiry() -> Invalid:
    message = "files do not expire here; leave it out, and delete the file when it has served"
    return Invalid(message, code="unsupported_parameter", param="expires_after")


def keep(parts: Parts, received: Received, actor: Actor) -> Dataset:
    """Check the file, store it and list it as a dataset."""
    stored = datasets.store(parts.storage, parts.settings, received.path, received.name)
    try:
        with parts.database.session() as session:
            return datasets.add(session, stored, actor.id)
    except BaseException:
        datasets.discard(parts.storage, stored)
        raise


@router.get("")
def list_files(
    session: ReadSession,
    storage: StorageDep,
    _actor: Reader,
    purpose: str | None = None,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
    order: Order = "desc",
) -> Object:
    """Datasets, and the results of jobs that are over. A purpose that is not served here has no files."""
    wanted = [one for one in file_listing.PURPOSES if purpose in (None, one)]
    cursor = file_listing.find(session, _row_id(after)) if after is not None else None
    found, has_more = file_listing.page(session, wanted, cursor, limit, order)
    return objects.page([_shown(session, storage, row) for row in found], has_more=has_more)


def _row_id(sent: str) -> str:
    return names.result_job_id(sent) or names.dataset_id(sent)


def _shown(session: ReadSession, storage: Storage, row: Dataset | Job) -> Object:
    if isinstance(row, Dataset):
        return objects.file(row)
    return objects.result_file(row, result_files.ensure(session, storage, row)[1])


def _find(session: ReadSession, sent: str) -> Dataset | Job:
    """Raises NotFound in the words that OpenAI's clients know."""
    result_of = names.result_job_id(sent)
    try:
        if result_of is not None:
            return result_files.find_job(session, result_of)
        return datasets.get(session, names.dataset_id(sent))
    except NotFound as missing:
        raise NotFound(f"No such File object: {sent[:100]}", param="id") from missing


@router.get("/{file_id}")
def read_file(file_id: str, session: ReadSession, storage: StorageDep, _actor: Reader) -> Object:
    return _shown(session, storage, _find(session, file_id))


@router.delete("/{file_id}")
def delete_file(file_id: str, session: WriteSession, storage: StorageDep, _actor: Writer) -> Object:
    """Refused while a job that is not over uses it. Results stay with their job."""
    if isinstance(row := _find(session, file_id), Job):
        raise Conflict("the results of a job are kept with it and cannot be deleted alone", code="file_in_use")
    datasets.delete(session, row.id)
    after_commit(session, lambda: storage.delete_prefix(dataset_prefix(row.id)))
    return {"id": file_id, "object": "file", "deleted": True}


@router.get("/{file_id}/content")
def read_content(file_id: str, request: Request, session: ReadSession, storage: StorageDep, _actor: Reader) -> Response:
    """The rows as they are stored, or the results as CSV. Answers Range and If-None-Match."""
    row = _find(session, file_id)
    if isinstance(row, Dataset):
        download = Download(file_name(row.name, ""), etag=row.sha256, sha256=row.sha256)
        return answer(request, storage.pin(row.storage_key), download)
    key, size = result_files.ensure(session, storage, row)
    return answer(request, storage.pin(key), Download("step_metrics.csv", etag=f"{row.id}-{size}"))
