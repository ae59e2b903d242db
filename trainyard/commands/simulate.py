"""`simulate`: how a trace of jobs would fare on given nodes. The planner is the server's: it runs as a program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()

Trace = Annotated[Path, typer.Argument(help=".jsonl or .csv: submit_s, devices, duration_s, project, priority, ...")]


@app.command()
def simulate(
    trace: Trace,
    nodes: Annotated[str, typer.Option(help="COUNTxDEVICES[:cpu|:cuda], several with commas.")] = "4x8",
    half_life_s: Annotated[float, typer.Option(min=1.0, help="Half-life of usage in fair shares.")] = 604_800.0,
    look_every_s: Annotated[float, typer.Option(min=0.1, help="How often the scheduler looks.")] = 2.0,
    span_nodes: Annotated[bool, typer.Option(help="Let a gang span nodes.")] = False,
) -> None:
    """Replay a trace against the scheduler: utilisation, waits and fairness beside plain first in, first out."""
    program = [sys.executable, "-m", "api", "simulate", str(trace), "--nodes", nodes]
    program += ["--half-life-s", str(half_life_s), "--look-every-s", str(look_every_s)]
    program += ["--span-nodes"] if span_nodes else []
    raise typer.Exit(subprocess.run(program, check=False).returncode)
