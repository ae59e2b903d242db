"""`sweep submit|list|show|cancel`: one job tried with different values."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from trainyard import screen
from trainyard.client import TERMINAL, Client
from trainyard.commands.connection import connect
from trainyard.commands.job_files import push_local_datasets, read_job_file

app = typer.Typer(help="One job tried with different values.", no_args_is_help=True)

SweepId = Annotated[str, typer.Argument(metavar="SWEEP", help="The sweep's id.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the service's own JSON.")]
LOOK_EVERY_S = 2.0


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The sweep as YAML or JSON.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait until it ends; its failure is this command's.")
    ] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override a field: n_trials=40")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="A repeated submit with it returns the same sweep.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Submit a sweep file. Dataset paths in its job that exist on this machine are uploaded first."""
    body = read_job_file(file, set_)
    with connect() as client:
        if isinstance(body.get("job"), dict):
            push_local_datasets(client, body["job"], file.parent)
        sweep = client.submit_sweep(body, idempotency_key)
        if follow:
            screen.err.print(f"{sweep['id']}  {client.url}/sweeps/{sweep['id']}", soft_wrap=True)
            sweep = _until_over(client, sweep)
        _show(client, sweep, as_json)
    raise typer.Exit(0 if not follow or sweep["state"] == "succeeded" else 1)


@app.command("list")
def list_sweeps(
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20, as_json: AsJson = False
) -> None:
    """List sweeps, newest first."""
    with connect() as client:
        listed = [sweep for sweep, _ in zip(client.sweeps(), range(limit), strict=False)]
    if as_json:
        screen.print_json(listed)
        return
    rows = (
        (one["id"], one["name"], one["state"], one["search"], f"{one['counts']['made']}/{one['n_trials']}", _best(one))
        for one in listed
    )
    screen.print_table(["id", "name", "state", "search", "trials", "best"], rows)


@app.command()
def show(sweep_id: SweepId, as_json: AsJson = False) -> None:
    """Show a sweep: its best trial, and every trial with its values."""
    with connect() as client:
        _show(client, client.sweep(sweep_id), as_json)


@app.command()
def cancel(sweep_id: SweepId, as_json: AsJson = False) -> None:
    """Make no further trial and cancel those under way."""
    with connect() as client:
        sweep = client.cancel_sweep(sweep_id)
    if as_json:
        screen.print_json(sweep)
    else:
        screen.out.print(f"{sweep['id']} is {sweep['state']}", soft_wrap=True)


def _until_over(client: Client, sweep: dict[str, Any]) -> dict[str, Any]:
    said = ""
    while sweep["state"] not in TERMINAL:
        words = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sweep["counts"].items() if count)
        if words != said:
            screen.err.print(words, markup=False, soft_wrap=True)
            said = words
        time.sleep(LOOK_EVERY_S)
        sweep = client.sweep(sweep["id"])
    return sweep


def _show(client: Client, sweep: dict[str, Any], as_json: bool) -> None:
    trials = list(client.sweep_trials(sweep["id"]))
    if as_json:
        screen.print_json({**sweep, "trials": trials})
        return
    screen.out.print(f"{sweep['name']}  {sweep['id']}  {sweep['state']}", markup=False, soft_wrap=True)
    for note in sweep["notes"]:
        screen.out.print(f"  {note}", markup=False, soft_wrap=True)
    screen.print_cause(sweep)
    if sweep["best"]:
        screen.out.print(f"  best: trial {sweep['best']['number']}, {_best(sweep)}", markup=False, soft_wrap=True)
    paths = list(sweep["parameters"])
    rows = (
        (
            one["number"],
            one["job_id"],
            one["state"],
            *(_figure(one["values"].get(path)) for path in paths),
            _figure(one["value"] if one["value"] is not None else one["latest"]),
            "best" if one["is_best"] else one["reason"],
        )
        for one in trials
    )
    screen.print_table(["#", "id", "state", *paths, sweep["objective"]["metric"], ""], rows)


def _figure(value: Any) -> str | None:
    return None if value is None else screen.number(value)


def _best(sweep: dict[str, Any]) -> str | None:
    best = sweep["best"]
    if best is None:
        return None
    values = "  ".join(f"{path}={screen.number(value)}" for path, value in best["values"].items())
    return f"{sweep['objective']['metric']} {screen.number(best['value'])}  {values}"
