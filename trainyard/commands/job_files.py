"""Job files: what the commands that take one share. A job or a sweep as YAML or JSON, with fields set over it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from trainyard import screen
from trainyard.client import Client

JobFile = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The job as YAML or JSON.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Override a field: training.learning_rate=1e-4")]


def read_job_file(file: Path, assignments: Iterable[str] | None = None) -> dict[str, Any]:
    """The file's mapping, with the assignments carried out on it. Raises typer.BadParameter."""
    try:
        body = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} is not YAML or JSON: {error}") from error
    if not isinstance(body, dict):
        raise typer.BadParameter(
            f"{file} should hold a mapping (name, model, dataset, ...), found {type(body).__name__}"
        )
    for assignment in assignments or ():
        assign(body, assignment)
    return body


def assign(body: dict[str, Any], assignment: str) -> None:
    """`training.learning_rate=1e-4` into the body; the value is read as YAML."""
    path, equals, value = assignment.partition("=")
    if not equals or not path:
        raise typer.BadParameter(f"expected FIELD=VALUE, found {assignment!r}")
    *parents, last = path.split(".")
    here = body
    for name in parents:
        if here.get(name) is None:
            here[name] = {}
        here = here[name]
        if not isinstance(here, dict):
            raise typer.BadParameter(f"{assignment!r}: {name} is a value, not a group of fields")
    here[last] = yaml.safe_load(value)


def push_local_datasets(client: Client, body: dict[str, Any], beside: Path) -> None:
    """Uploads `dataset.train` and `dataset.eval` where they name files, and puts the new ids in their place."""
    dataset = body.get("dataset")
    if not isinstance(dataset, dict):
        return
    for split in ("train", "eval"):
        named = dataset.get(split)
        if isinstance(named, str) and (file := beside / named).is_file():
            dataset[split] = client.push_dataset(file)["id"]
            screen.err.print(f"uploaded {named} as {dataset[split]}")
