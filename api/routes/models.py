"""Base models: register a folder or a hub id under a name, list, look at, take off."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Response

from api.core import models, tables
from api.core.auth import Actor, Permission
from api.deps import Limit, ReadSession, SettingsDep, WriteSession, allow
from api.schemas import ModelIn, ModelOut, Page, refusals

router = APIRouter(prefix="/v1/models", tags=["models"])

# A name may hold slashes, as hub ids do.
ModelName = Annotated[str, Path(description="The model's name or id.", examples=["smollm2"])]
EXAMPLES = {
    "folder": {"summary": "A folder", "value": {"name": "smollm2", "source": "/models/SmolLM2-135M-Instruct"}},
    "hub": {
        "summary": "From the hub",
        "value": {"name": "smollm2-hub", "source": "HuggingFaceTB/SmolLM2-135M-Instruct", "revision": "main"},
    },
}


@router.post(
    "",
    status_code=201,
    summary="Register a base model",
    responses={200: {"model": ModelOut, "description": "It was registered so before."}, **refusals(400, 409)},
)
def register_model(
    body: Annotated[ModelIn, Body(openapi_examples=EXAMPLES)],
    session: WriteSession,
    settings: SettingsDep,
    _actor: Annotated[Actor, allow(Permission.MODELS_WRITE)],
    response: Response,
) -> ModelOut:
    """A folder is looked at now: config.json, tokenizer files, safetensors weights. Pickled weights are refused."""
    model, is_new = models.register(session, body.name, body.source, body.revision, settings)
    if not is_new:
        response.status_code = 200
    response.headers["Location"] = f"/v1/models/{model.id}"
    return _out(model)


@router.get("", summary="List base models", responses=refusals())
def list_models(
    session: ReadSession,
    _actor: Annotated[Actor, allow(Permission.MODELS_READ)],
    after: Annotated[str | None, Query(max_length=100, description="`next` of the page before.")] = None,
    limit: Limit = 50,
) -> Page[ModelOut]:
    """Newest first."""
    found, cursor = models.listing(session, after, limit)
    return Page(data=[_out(model) for model in found], has_more=cursor is not None, next=cursor)


@router.get("/{name:path}", summary="A base model", responses=refusals(404))
def read_model(
    name: ModelName, session: ReadSession, _actor: Annotated[Actor, allow(Permission.MODELS_READ)]
) -> ModelOut:
    return _out(models.get(session, name))


@router.delete(
    "/{name:path}", status_code=204, summary="Take a base model off the registry", responses=refusals(404, 409)
)
def delete_model(
    name: ModelName, session: WriteSession, _actor: Annotated[Actor, allow(Permission.MODELS_WRITE)]
) -> None:
    """Its files stay where they are. Refused while a job that is not over uses it."""
    models.delete(session, name)


def _out(model: tables.BaseModel) -> ModelOut:
    return ModelOut(
        id=model.id,
        name=model.name,
        source=model.source,
        revision=model.revision,
        details=model.details,
        created_at=model.created_at,
    )
