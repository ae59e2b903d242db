"""`cancel pause resume retry clone priority change`: what is asked of a job that exists."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trainyard import screen
from trainyard.commands.connection import connect
from trainyard.commands.job_files import assign
from trainyard.commands.jobs import AsJson, JobId

app = typer.Typer()

Key = Annotated[str | None, typer.Option("--idempotency-key", help="Repeated with it, it makes no second job.")]


@app.command()
def cancel(job_id: JobId, as_json: AsJson = False) -> None:
    """Cancel a job. It is `cancelled` only once none of its processes is left."""
    with connect() as client:
        _show(client.cancel(job_id), as_json)


@app.command()
def pause(job_id: JobId, as_json: AsJson = False) -> None:
    """Pause a job: a run saves a checkpoint and leaves its devices."""
    with connect() as client:
        _show(client.pause(job_id), as_json)


@app.command()
def resume(job_id: JobId, as_json: AsJson = False) -> None:
    """Put a paused job back into the queue; it goes on from its newest checkpoint."""
    with connect() as client:
        _show(client.resume(job_id), as_json)


@app.command()
def retry(
    job_id: JobId,
    checkpoint: Annotated[
        str | None, typer.Option("--from", metavar="CHECKPOINT", help="Go on from best, last or a step.")
    ] = None,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Make a new job of one that failed or was cancelled."""
    with connect() as client:
        _show(client.retry(job_id, checkpoint, idempotency_key), as_json)


@app.command()
def clone(
    job_id: JobId,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Change a field: training.learning_rate=1e-5; null takes it away.")
    ] = None,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Make a new job like this one, with some fields changed."""
    with connect() as client:
        _show(client.clone(job_id, _assigned(set_), idempotency_key), as_json)


@app.command()
def priority(
    job_id: JobId,
    value: Annotated[int, typer.Argument(min=-1000, max=1000, help="Higher goes first.")],
    as_json: AsJson = False,
) -> None:
    """Change the priority of a job that waits."""
    with connect() as client:
        _show(client.change(job_id, priority=value), as_json)


@app.command()
def change(
    job_id: JobId,
    set_: Annotated[
        list[str],
        typer.Option("--set", help="labels.team=a, notes=..., priority=5, time_limit_s=3600; null takes away."),
    ],
    as_json: AsJson = False,
) -> None:
    """Change labels and notes at any time, priority and time limit while the job waits."""
    with connect() as client:
        _show(client.change(job_id, **_assigned(set_)), as_json)


def _assigned(assignments: list[str] | None) -> dict[str, Any]:
    patch: dict[str, Any] = {}
    for assignment in assignments or []:
        assign(patch, assignment)
    return patch


def _show(job: dict[str, Any], as_json: bool) -> None:
    screen.print_json(job) if as_json else screen.print_job(job)
