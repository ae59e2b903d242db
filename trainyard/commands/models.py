"""`trainyard models add|list` and `trainyard nodes`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainyard import screen
from trainyard.commands.connection import connect

app = typer.Typer(no_args_is_help=True, help="Base models: add, list.")
AsJson = Annotated[bool, typer.Option("--json")]


@app.command()
def add(
    name: str,
    source: Annotated[
        str, typer.Argument(metavar="PATH_OR_HUB_ID", help="A folder on the service's machine, or a hub id.")
    ],
    revision: Annotated[str | None, typer.Option(help="Hub revision: a commit, tag or branch.")] = None,
    as_json: AsJson = False,
) -> None:
    """Register a base model under a name that jobs use."""
    folder = Path(source).expanduser()
    place = str(folder.resolve()) if folder.is_dir() else source
    with connect() as client:
        model = client.add_model(name, place, revision)
    screen.print_json(model) if as_json else screen.out.print(f"{model['name']}  {model['source']}", markup=False)


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List registered base models."""
    with connect() as client:
        listed = list(client.models())
    if as_json:
        screen.print_json(listed)
        return
    screen.print_table(["name", "source", "revision"], ((m["name"], m["source"], m["revision"]) for m in listed))
