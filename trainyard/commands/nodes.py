"""`nodes`: the machines that run jobs, and taking one out of work."""

from __future__ import annotations

from typing import Annotated

import typer

from trainyard import screen
from trainyard.commands.connection import connect
from trainyard.results import Node

app = typer.Typer(help="The machines that run jobs.", invoke_without_command=True)

Name = Annotated[str, typer.Argument(metavar="NODE", help="The node's name or id.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the service's own JSON.")]


@app.callback()
def list_nodes(context: typer.Context, as_json: AsJson = False) -> None:
    """List the machines that run jobs, and their devices."""
    if context.invoked_subcommand is not None:
        return
    with connect() as client:
        listed = list(client.nodes())
    screen.print_json(listed) if as_json else _print(listed)


@app.command()
def drain(
    node: Name,
    stop: Annotated[
        bool, typer.Option("--stop", help="Have its runs leave at a checkpoint; they are queued again.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Give a node no further work; once its runs are over it is held empty (cordoned)."""
    with connect() as client:
        _show(client.drain(node, stop=stop), as_json)


@app.command()
def cordon(node: Name, as_json: AsJson = False) -> None:
    """Give a node no further work; what runs there goes on."""
    with connect() as client:
        _show(client.cordon(node), as_json)


@app.command()
def uncordon(node: Name, as_json: AsJson = False) -> None:
    """Give a node work again, after a drain or a cordon."""
    with connect() as client:
        _show(client.uncordon(node), as_json)


# The word that people look for after `drain`.
app.command("undrain", hidden=True)(uncordon)


def _show(node: Node, as_json: bool) -> None:
    screen.print_json(node) if as_json else _print([node])


def _print(nodes: list[Node]) -> None:
    rows = (
        (node["name"], node["state"], f"{device['kind']}:{device['index']}", device["name"], device["job_id"] or "free")
        for node in nodes
        for device in node["devices"]
    )
    screen.print_table(["node", "state", "device", "what", "used by"], rows)
