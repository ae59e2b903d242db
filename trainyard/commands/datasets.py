"""`trainyard datasets push|list|rows|delete`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainyard import screen
from trainyard.commands.connection import connect

app = typer.Typer(no_args_is_help=True, help="Datasets: push, list, rows, delete.")
AsJson = Annotated[bool, typer.Option("--json")]


@app.command()
def push(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False)],
    name: Annotated[str | None, typer.Option(help="Shown name; default: the file's.")] = None,
    as_json: AsJson = False,
) -> None:
    """Upload a JSONL or JSON file (gzip allowed). Bad rows are refused with their line numbers."""
    with connect() as client:
        dataset = client.push_dataset(file, name)
    if as_json:
        screen.print_json(dataset)
        return
    screen.out.print(f"{dataset['id']}  {dataset['n_rows']} rows, format {dataset['format'] or 'by columns'}")
    for note in dataset.get("notes", []):
        screen.err.print(f"note: {note}", markup=False)


@app.command("list")
def list_datasets(as_json: AsJson = False) -> None:
    """List datasets, newest first."""
    with connect() as client:
        listed = list(client.datasets())
    if as_json:
        screen.print_json(listed)
        return
    rows = ((d["id"], d["name"], d["format"], d["n_rows"], screen.size(d["size_bytes"])) for d in listed)
    screen.print_table(["id", "name", "format", "rows", "size"], rows)


@app.command("rows")
def show_rows(
    dataset_id: str,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="One object a line, as without it.")] = False,
) -> None:
    """Show the first rows of a dataset, one JSON object a line."""
    del as_json
    with connect() as client:
        for row in client.dataset_rows(dataset_id, limit=limit)["data"]:
            screen.print_json_line(row)


@app.command()
def delete(dataset_id: str, as_json: AsJson = False) -> None:
    """Delete a dataset that no unfinished job needs."""
    with connect() as client:
        client.delete_dataset(dataset_id)
    if as_json:
        screen.print_json({"id": dataset_id, "state": "deleted"})
    else:
        screen.out.print(f"deleted {dataset_id}", markup=False)
