"""`submit jobs show logs metrics download`: a job from its file to its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from trainyard import screen
from trainyard.commands.connection import connect
from trainyard.commands.job_files import JobFile, Set, push_local_datasets, read_job_file
from trainyard.follow import follow_job

app = typer.Typer()

JobId = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the service's own JSON.")]


@app.command()
def submit(
    file: JobFile,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show it until it ends; its failure is this command's.")
    ] = False,
    set_: Set = None,
    idempotency_key: Annotated[str | None, typer.Option(help="A repeated submit with it returns the same job.")] = None,
    as_json: AsJson = False,
) -> None:
    """Submit a job file. Dataset paths in it that exist on this machine are uploaded first."""
    body = read_job_file(file, set_)
    with connect() as client:
        push_local_datasets(client, body, file.parent)
        job = client.submit(body, idempotency_key)
        if not follow:
            screen.print_json(job) if as_json else screen.print_job(job)
            return
        console = screen.err if as_json else screen.out  # with --json the output is JSON and nothing else
        console.print(f"{job['id']}  {client.url}/jobs/{job['id']}", soft_wrap=True)
        ended = follow_job(client, job["id"], console)
        screen.print_json(ended) if as_json else screen.print_job(ended)
        raise typer.Exit(0 if ended["state"] == "succeeded" else 1)


@app.command()
def run(
    file: JobFile,
    set_: Set = None,
    idempotency_key: Annotated[str | None, typer.Option(help="A repeated run with it follows the same job.")] = None,
    as_json: AsJson = False,
) -> None:
    """Submit a job file and show it until it ends. The exit code is the job's: 1 when it did not succeed."""
    submit(file, follow=True, set_=set_, idempotency_key=idempotency_key, as_json=as_json)


@app.command("jobs")
def list_jobs(
    state: Annotated[list[str] | None, typer.Option(help="Only these states.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="Only with this label, KEY:VALUE.")] = None,
    name: Annotated[str | None, typer.Option(help="Only names that contain this.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    with connect() as client:
        listed = [job for job, _ in zip(client.jobs(state=state, label=label, name=name), range(limit), strict=False)]
    if as_json:
        screen.print_json(listed)
        return
    screen.print_table(
        ["id", "name", "state", "step", "left", "best", "created"],
        (
            (
                job["id"],
                job["name"],
                job["state"],
                f"{job['step']}/{job['planned_steps'] or '?'}",
                screen.duration(job.get("eta_s")) if job["state"] == "running" else None,
                screen.best_text(job),
                screen.ago(job["created_at"]),
            )
            for job in listed
        ),
    )


@app.command()
def show(job_id: JobId, as_json: AsJson = False) -> None:
    """Show one job: state, progress, cause of a failure, checkpoints."""
    with connect() as client:
        job, checkpoints = client.job(job_id), client.checkpoints(job_id)
    if as_json:
        screen.print_json({**job, "checkpoints": checkpoints})
        return
    screen.print_job(job)
    for checkpoint in checkpoints:
        marks = " ".join(["best"] * checkpoint["is_best"] + ["last"] * checkpoint["is_last"])
        screen.out.print(f"  checkpoint {checkpoint['step']:>7}  {screen.size(checkpoint['size_bytes']):>9}  {marks}")


@app.command()
def logs(
    job_id: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a job's log lines."""
    with connect() as client:
        for line in client.logs(job_id, follow=follow):
            if as_json:
                screen.print_json_line(line)
            else:
                screen.out.out(f"[{line['source']}] {line['text']}", highlight=False)


@app.command()
def metrics(
    job_id: JobId, follow: Annotated[bool, typer.Option("--follow", "-f")] = False, as_json: AsJson = False
) -> None:
    """Print a job's metrics, a line a step."""
    with connect() as client:
        for row in client.metrics(job_id, follow=follow):
            if as_json:
                screen.print_json_line(row)
                continue
            shown = {**row["values"], **row.get("nonfinite", {})}
            figures = "  ".join(f"{name} {screen.number(value)}" for name, value in shown.items())
            screen.out.out(f"{row['kind']:<5} step {row['step']:>6}  {figures}", highlight=False)


@app.command()
def download(
    job_id: JobId,
    which: Annotated[str, typer.Argument(help="best, last or a step.")] = "best",
    to: Annotated[Path | None, typer.Option("--to", help="Folder; default: JOB-STEP here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Download a checkpoint, resuming where an earlier download ended; every file's digest is checked."""
    with connect() as client:
        checkpoint = client.pick(job_id, which)
        target = to or Path(f"{job_id}-step-{checkpoint['step']}")
        bars = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*bars, console=screen.err) as progress:
            task = progress.add_task(f"step {checkpoint['step']}", total=checkpoint["size_bytes"])
            client.download(job_id, target, str(checkpoint["step"]), on_bytes=lambda n: progress.advance(task, n))
    screen.print_json({"path": str(target), **checkpoint}) if as_json else screen.out.print(str(target), soft_wrap=True)
