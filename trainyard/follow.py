"""Following a job on a terminal: a progress bar with ETA, evaluation lines and events as they come."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn

from trainyard import screen
from trainyard.client import TERMINAL, Client
from trainyard.patience import patiently
from trainyard.results import Event

LOOK_EVERY_S = 0.5


def follow_job(client: Client, job_id: str, console: Console = screen.out) -> dict[str, Any]:
    """Shows a job until it ends and returns its last description. Leaving (Ctrl-C) changes nothing about the job."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=console, transient=False) as progress:
        task = progress.add_task("waiting", total=None, figures="", left="")
        seen = 0
        while True:
            job = patiently(lambda: client.job(job_id))
            new = patiently(lambda after=seen: list(client.events(job_id, after=after)))  # type: ignore[misc]
            seen = _print_events(progress, new, seen)
            _update(progress, task, job)
            if job["state"] in TERMINAL:
                return job
            time.sleep(LOOK_EVERY_S)


def _print_events(progress: Progress, events: list[Event], seen: int) -> int:
    for event in events:
        seen = event["n"]
        if event["kind"] == "phase":
            continue  # the bar says it
        colour = {"warning": "yellow", "error": "red"}.get(event["level"], "dim")
        line = f"[{colour}]{event['at'][11:19]}[/{colour}] {escape(event['message'])}"
        progress.console.print(line, soft_wrap=True)
    return seen


def _update(progress: Progress, task: TaskID, job: dict[str, Any]) -> None:
    latest = job.get("latest") or {}
    figures = "  ".join(f"{name} {screen.number(latest[name])}" for name in ("loss", "eval_loss") if name in latest)
    where = job.get("phase") if job["state"] == "running" else job["state"]
    left = screen.duration(job.get("eta_s"))
    progress.update(
        task,
        description=escape(screen.waiting_text(job) or str(where or job["state"])),
        total=job.get("planned_steps"),
        completed=job.get("step") or 0,
        figures=escape(figures),
        left=f"{left} left" if left and job["state"] == "running" else "",
    )
