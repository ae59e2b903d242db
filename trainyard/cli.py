"""The `trainyard` command. Every subcommand lives in `trainyard/commands`; this file only joins them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainyard import screen
from trainyard.commands import (
    datasets,
    doctor,
    estimates,
    exports,
    job_life,
    jobs,
    keys,
    models,
    nodes,
    opening,
    server,
    simulate,
    sweeps,
    try_it,
)
from trainyard.commands.connection import chosen
from trainyard.errors import ClientError

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="Fine-tuning jobs on your own GPUs.")
app.add_typer(server.app)
app.add_typer(jobs.app)
app.add_typer(estimates.app)
app.add_typer(exports.app)
app.add_typer(job_life.app)
app.add_typer(datasets.app, name="datasets")
app.add_typer(models.app, name="models")
app.add_typer(nodes.app, name="nodes")
app.add_typer(simulate.app)
app.add_typer(keys.app, name="keys")
app.add_typer(doctor.app)
app.add_typer(opening.app)
app.add_typer(sweeps.app, name="sweep")
app.add_typer(try_it.app)


@app.callback()
def options(
    url: Annotated[str | None, typer.Option(envvar="TRAINYARD_URL", help="Address of the service.")] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="TRAINYARD_API_KEY", help="Key; better in the environment.")
    ] = None,
    home: Annotated[Path | None, typer.Option("--home", help="Data folder to find address and key in.")] = None,
) -> None:
    chosen.url, chosen.api_key, chosen.data_dir = url, api_key, home


def main() -> None:
    """The console script: an error of the service or the network is a sentence, not a traceback."""
    try:
        app()
    except ClientError as error:
        screen.print_error(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
