"""`open` and `schema`: the dashboard of a job, and what an editor completes a job file by."""

from __future__ import annotations

import os
import sys
import webbrowser
from typing import Annotated

import typer

from trainyard import screen
from trainyard.calls import segment
from trainyard.commands.connection import connect

app = typer.Typer()


@app.command("open")
def open_dashboard(
    job_id: Annotated[str | None, typer.Argument(metavar="[JOB]", help="A job's id; else the list of jobs.")] = None,
    print_only: Annotated[bool, typer.Option("--print", help="Print the link and open nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print {url} and open nothing.")] = False,
) -> None:
    """Print the link to the dashboard, or to a job on it, and open it where there is a screen."""
    with connect() as client:
        url = f"{client.url}/jobs" + (f"/{segment(client.job(job_id).id)}" if job_id else "")
    screen.print_json({"url": url}) if as_json else screen.out.out(url, highlight=False)
    if not print_only and not as_json and _has_screen():
        webbrowser.open(url)


@app.command()
def schema() -> None:
    """Print the JSON schema of a job file: trainyard schema > job.schema.json."""
    with connect() as client:
        screen.print_json(client.job_schema())


def _has_screen() -> bool:
    is_local = sys.stdout.isatty() and "SSH_CONNECTION" not in os.environ
    return is_local and (sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY")))
