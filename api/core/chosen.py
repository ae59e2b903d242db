"""What a job names: its base model and its datasets, found in the registry, or why they cannot be used."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.core import datasets, models
from api.core.errors import NotFound
from api.core.ids import is_id
from api.core.settings import Settings
from api.core.specs import DatasetSpec, JobSpec, ResolvedModel, ResolvedRows
from api.core.tables import BaseModel, Dataset
from trainer_core.data.formats import FormatError, TrainFormat, format_for
from trainer_core.data.report import DatasetReport
from trainer_core.problems import Problem, nearest, show

MAX_NAMES = 1000


def find_model(session: Session, name: str, problems: list[Problem]) -> BaseModel | None:
    try:
        return models.get(session, name)
    except NotFound as error:
        problems.append(Problem("model", error.message, "not_found"))
        return None


def find_dataset(session: Session, part: str, wanted: str, problems: list[Problem]) -> Dataset | None:
    """By its id, or the newest one of that name."""
    if is_id(wanted):
        try:
            return datasets.get(session, wanted, for_use=True)
        except NotFound:
            message = "there is no such dataset, or it was deleted"
            problems.append(Problem(f"dataset.{part}", message, "not_found", found=show(wanted)))
            return None
    listed = (
        select(Dataset.name, Dataset.id)
        .where(Dataset.deleted_at.is_(None))
        .order_by(Dataset.created_at.desc(), Dataset.id.desc())
    )
    named = session.execute(listed.where(Dataset.name == wanted).limit(1)).first()
    if named is not None:
        return datasets.get(session, named.id, for_use=True)
    names = [row.name for row in session.execute(listed.limit(MAX_NAMES))]
    near = nearest(wanted, names)
    hint = f"Did you mean `{near}`?" if near else "Upload it first: POST /v1/datasets."
    message = "no dataset has this id or name"
    problems.append(Problem(f"dataset.{part}", message, "not_found", hint, show(wanted)))
    return None


def format_of(
    spec: JobSpec, train: Dataset | None, evaluated: Dataset | None, problems: list[Problem]
) -> TrainFormat | None:
    """The format the method reads both files in."""
    formats: list[TrainFormat] = []
    for part, dataset in (("train", train), ("eval", evaluated)):
        if dataset is None:
            continue
        try:
            report = DatasetReport.model_validate(dataset.report)
            formats.append(format_for(spec.method, report, spec.dataset.columns.mapped()))
        except FormatError as error:
            param = f"dataset.columns.{error.field}" if error.field else f"dataset.{part}"
            problems.append(Problem(param, f"{part}: {error.message}", error.code))
    if len(formats) == 2 and formats[0] != formats[1]:
        message = f"is of format {formats[1]}, and train is of format {formats[0]}"
        problems.append(Problem("dataset.eval", message, "conflict", "Send both in one format."))
    return formats[0] if formats else None


def count_rows(
    spec: DatasetSpec, train: Dataset | None, evaluated: Dataset | None, problems: list[Problem]
) -> tuple[int, int]:
    """Rows for training and for evaluation, before any is dropped by the tokenizer; as the trainer splits them."""
    fraction = spec.eval_fraction
    n_rows = train.n_rows if train else 0
    if evaluated is not None:
        if evaluated.n_rows == 0:
            problems.append(Problem("dataset.eval", "has no rows", "no_rows", "Leave it out, or send rows."))
        return n_rows, evaluated.n_rows
    if fraction is None or train is None:
        return n_rows, 0
    if n_rows < 2:
        message = f"needs at least two rows, one to train on and one to hold out; the dataset has {n_rows}"
        problems.append(Problem("dataset.eval_fraction", message, "no_rows", "Send more rows, or leave it out."))
        return n_rows, 0
    n_eval = min(max(1, round(n_rows * fraction)), n_rows - 1)
    return n_rows - n_eval, n_eval


def resolved_rows(dataset: Dataset) -> ResolvedRows:
    return ResolvedRows(
        id=dataset.id,
        name=dataset.name,
        storage_key=dataset.storage_key,
        sha256=dataset.sha256,
        n_rows=dataset.n_rows,
        size_bytes=dataset.size_bytes,
    )


def resolved_model(model: BaseModel, settings: Settings) -> ResolvedModel:
    return ResolvedModel(
        id=model.id,
        name=model.name,
        source=model.source,
        revision=model.revision,
        trust_remote_code=settings.allow_remote_code and bool(model.details.get("needs_remote_code", True)),
        n_parameters=model.details.get("n_parameters"),
    )


def with_ids(spec: JobSpec, train: Dataset, evaluated: Dataset | None) -> JobSpec:
    """The body with datasets named by id: names may come to mean another one, and ids keep theirs from deletion."""
    named = spec.dataset.model_copy(update={"train": train.id, "eval": evaluated.id if evaluated else None})
    return spec.model_copy(update={"dataset": named})
