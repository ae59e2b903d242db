"""Models as OpenAI's clients list them: registered base models, and what jobs made of them."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter

from api.core import fine_tunes, models
from api.core.auth import Actor, Permission
from api.core.errors import NotFound
from api.core.tables import BaseModel
from api.deps import ReadSession, StorageDep, WriteSession, after_commit, allow
from api.openai import names, objects
from api.openai.objects import Object

router = APIRouter(prefix="/openai/v1/models", include_in_schema=False)

MAX_BASE = 10_000
Reader = Annotated[Actor, allow(Permission.MODELS_READ)]
Writer = Annotated[Actor, allow(Permission.MODELS_WRITE)]


@router.get("")
def list_models(session: ReadSession, _actor: Reader) -> Object:
    """All of them, on the one page that the client reads."""
    base, _ = models.listing(session, None, MAX_BASE)
    shown = [objects.base_model(row) for row in base]
    shown += [objects.tuned_model(tuned) for tuned in fine_tunes.models(session)]
    return {"object": "list", "data": shown}


@router.get("/{model:path}")
def read_model(model: str, session: ReadSession, _actor: Reader) -> Object:
    """A base model, a fine-tuned one, or a checkpoint of it. It says where the files are to be downloaded."""
    found = names.tuned(model)
    if found is None:
        return objects.base_model(_base(session, model))
    tuned, listed = fine_tunes.find_model(session, model, found.job_id, found.step)
    at = listed.checkpoint.created_at if found.step is not None else None
    archive = f"/v1/jobs/{tuned.job.id}/checkpoints/{listed.checkpoint.step}/archive"
    return objects.tuned_model(tuned, found.step, at) | {"archive_url": archive}


def _base(session: ReadSession, name: str) -> BaseModel:
    try:
        return models.get(session, name)
    except NotFound as missing:
        raise NotFound(missing.message, code="model_not_found", param="model") from missing


@router.delete("/{model:path}")
def delete_model(model: str, session: WriteSession, storage: StorageDep, _actor: Writer) -> Object:
    """A fine-tuned model goes with its files; a base model is taken off the registry and its files stay."""
    found = names.tuned(model)
    if found is None:
        models.delete(session, _base(session, model).name)
    else:
        tuned, _ = fine_tunes.find_model(session, model, found.job_id, found.step)
        for prefix in fine_tunes.delete_model(session, tuned, found.step):
            after_commit(session, partial(storage.delete_prefix, prefix))
    return {"id": model, "object": "model", "deleted": True}
