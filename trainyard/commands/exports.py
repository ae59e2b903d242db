"""`export exports`: weights made of a job's checkpoint, proved, and downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from trainyard import screen
from trainyard.client import Client
from trainyard.commands.connection import connect
from trainyard.commands.jobs import AsJson, JobId
from trainyard.results import Export

app = typer.Typer()


@app.command()
def export(
    job_id: JobId,
    kind: Annotated[str, typer.Option("--kind", help="adapter, merged, fp32 or full.")],
    checkpoint: Annotated[str, typer.Option("--checkpoint", help="best, last or a step.")] = "best",
    dtype: Annotated[str, typer.Option("--dtype", help="auto, float32, bfloat16 or float16.")] = "auto",
    max_shard_size: Annotated[str, typer.Option("--max-shard-size", help="Largest file, such as 500MB.")] = "5GB",
    to: Annotated[Path | None, typer.Option("--to", help="Folder; default: JOB-step-STEP-KIND here.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for it and download it.")] = True,
    as_json: AsJson = False,
) -> None:
    """Export a checkpoint: wait until it is made and proved, then download it."""
    with connect() as client:
        found = client.export(job_id, kind, checkpoint, dtype=dtype, max_shard_size=max_shard_size)
        if wait:
            screen.err.print(f"{found['id']}: step {found['step']} as {kind}", soft_wrap=True)
            found = client.wait_export(job_id, found["id"])
        if found["state"] == "succeeded":
            target = to or Path(f"{job_id}-step-{found['step']}-{kind}")
            _download(client, found, target)
            screen.err.print(f"proved: {_proof(found)}", soft_wrap=True)
    if as_json:
        screen.print_json(found)
    elif found["state"] == "succeeded":
        screen.out.print(str(target), soft_wrap=True)
    else:
        screen.out.print(f"{found['id']} is {found['state']}", soft_wrap=True)
        _print_cause(found)
    raise typer.Exit(0 if found["state"] == "succeeded" or not wait else 1)


@app.command("exports")
def list_exports(job_id: JobId, as_json: AsJson = False) -> None:
    """List a job's exports, newest first."""
    with connect() as client:
        listed = client.exports(job_id)
    if as_json:
        screen.print_json(listed)
        return
    rows = (
        (one["id"], one["step"], one["kind"], one["dtype"], one["state"], screen.size(one["size_bytes"]))
        for one in listed
    )
    screen.print_table(["id", "step", "kind", "dtype", "state", "size"], rows)


def _download(client: Client, found: Export, target: Path) -> None:
    bars = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*bars, console=screen.err) as progress:
        task = progress.add_task(f"{found['kind']} of step {found['step']}", total=found["size_bytes"])
        client.download_export(found, target, on_bytes=lambda n: progress.advance(task, n))


def _proof(found: Export) -> str:
    return ", ".join(
        f"{name} differs by {one['difference']:.2g} of {one['allowed']:.2g} allowed"
        for name, one in found["proof"].items()
    )


def _print_cause(found: Export) -> None:
    cause = found["cause"] or {}
    for line in (cause.get("message"), cause.get("hint")):
        if line:
            screen.err.print(line, markup=False, soft_wrap=True)
