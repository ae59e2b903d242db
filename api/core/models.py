"""The registry of base models: a name people use, and the folder or hub id behind it.

A folder is looked at when it is registered: what would end a run after its start is said then.
"""

from __future__ import annotations

import re
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from api.core.db import now
from api.core.errors import Conflict, Invalid, NotFound
from api.core.ids import is_id, new_id
from api.core.model_folder import look_at
from api.core.settings import Settings
from api.core.specs import one_line
from api.core.states import TERMINAL
from api.core.tables import BaseModel, Job
from trainer_core.problems import nearest

HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?$", re.ASCII)
REVISION = re.compile(r"^[\w./-]{1,200}$", re.ASCII)
MAX_NAME = 200


def register(
    session: Session, name: str, source: str, revision: str | None, settings: Settings
) -> tuple[BaseModel, bool]:
    """The model and whether it is new. The same name with the same source is looked at again and kept.

    Raises Invalid when the folder cannot be trained from, Conflict when the name means something else already.
    """
    name = _checked_name(name)
    if revision is not None and REVISION.fullmatch(revision) is None:
        raise Invalid("expected a commit, tag or branch", param="revision")
    details = _details(source, revision, settings)
    known = session.scalar(select(BaseModel).where(BaseModel.name == name))
    if known is not None:
        return _again(known, source, revision, details), False
    model = BaseModel(id=new_id("model"), name=name, source=source, revision=revision, details=details)
    try:
        with session.begin_nested():
            session.add(model)
    except IntegrityError as error:
        raise Conflict(f"a model named {name!r} was registered this very moment", code="name_taken") from error
    return model, True


def _checked_name(name: str) -> str:
    try:
        name = one_line(name)
    except ValueError as error:
        raise Invalid(str(error), param="name") from error
    if len(name) > MAX_NAME:
        raise Invalid(f"expected at most {MAX_NAME} characters, found {len(name)}", param="name")
    return name


def _details(source: str, revision: str | None, settings: Settings) -> dict[str, object]:
    if source.startswith(("/", "~", ".")):
        folder = Path(source)
        if not folder.is_absolute():
            raise Invalid("a folder is given by its absolute path, which is the same on every node", param="source")
        if revision is not None:
            raise Invalid("only a model of the hub has a revision; leave it out for a folder", param="revision")
        return look_at(folder, allow_remote_code=settings.allow_remote_code)
    if HUB_ID.fullmatch(source) is None:
        raise Invalid("expected an absolute folder or a hub id such as org/model", param="source")
    return {}


def _again(known: BaseModel, source: str, revision: str | None, details: dict[str, object]) -> BaseModel:
    if (known.source, known.revision) != (source, revision):
        at = f" at {known.revision}" if known.revision else ""
        raise Conflict(
            f"{known.name!r} is registered as {known.source}{at}; delete that one first, or take another name",
            code="name_taken",
            param="name",
        )
    known.details = details
    return known


def get(session: Session, name_or_id: str) -> BaseModel:
    """A registered model by its name or id. Raises NotFound with the nearest name there is."""
    by = BaseModel.id if name_or_id.startswith("model_") and is_id(name_or_id) else BaseModel.name
    model = session.scalar(select(BaseModel).where(by == name_or_id, BaseModel.deleted_at.is_(None)))
    if model is None:
        names = session.scalars(select(BaseModel.name).where(BaseModel.deleted_at.is_(None)).limit(1000)).all()
        near = nearest(name_or_id, names)
        hint = f"did you mean {near!r}?" if near else f"there is: {', '.join(names[:10]) or 'none yet; register one'}"
        raise NotFound(f"no model is registered as {name_or_id[:60]!r}; {hint}")
    return model


def listing(session: Session, after: str | None, limit: int) -> tuple[list[BaseModel], str | None]:
    """A page of models, newest first, and the cursor of the page that follows."""
    query = select(BaseModel).where(BaseModel.deleted_at.is_(None)).order_by(BaseModel.id.desc()).limit(limit + 1)
    if after is not None:
        if not is_id(after):
            raise Invalid("this is no cursor of a model list; pass `next` of the page before", param="after")
        query = query.where(BaseModel.id < after)
    found = list(session.scalars(query))
    return found[:limit], found[limit - 1].id if len(found) > limit else None


def delete(session: Session, name_or_id: str) -> None:
    """Take a model off the registry; its files stay. Raises Conflict while a job that is not over uses it."""
    model = get(session, name_or_id)
    query = select(Job.id).where(Job.model_name == model.name, Job.state.not_in(TERMINAL)).limit(5)
    if in_use := session.scalars(query).all():
        raise Conflict(f"jobs that are not over use {model.name!r}: {', '.join(in_use)}", code="in_use")
    model.deleted_at = now()
    # The name is free again; the row stays for the jobs that were trained from it.
    model.details = {**model.details, "name": model.name}
    model.name = model.id
