"""What the command prints: tables, one job, errors. Text from the service is text, never markup."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, TextIO

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trainyard.errors import ApiError, ClientError

PIPE_WIDTH = 240


def _console(stream: TextIO, *, is_stderr: bool) -> Console:
    """Into a pipe or a file nothing is folded at the 80 columns of a terminal that is not there."""
    fixed = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(stderr=is_stderr, highlight=False, width=fixed)


out = _console(sys.stdout, is_stderr=False)
err = _console(sys.stderr, is_stderr=True)

FIGURES = ("loss", "eval_loss", "learning_rate", "grad_norm", "tokens_per_second")
COLOURS = {"succeeded": "green", "failed": "red", "cancelled": "yellow", "running": "cyan", "cancelling": "yellow"}


def print_json(value: Any) -> None:
    out.print_json(json.dumps(value))


def print_json_line(value: Any) -> None:
    """One of many: an object a line, as other programs read them."""
    out.out(json.dumps(value, ensure_ascii=False), highlight=False)


def print_table(columns: list[str], rows: Iterable[Iterable[Any]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    cells = [[escape("" if cell is None else str(cell)) for cell in row] for row in rows]
    for at, name in enumerate(columns):
        # An id is there to be copied: it is never cut, however narrow the terminal is.
        whole = max((len(row[at]) for row in cells), default=0) if name == "id" else None
        table.add_column(name, no_wrap=name == "id", overflow="fold", min_width=whole)
    for row in cells:
        table.add_row(*row)
    out.print(table)


def state_text(state: str) -> str:
    colour = COLOURS.get(state)
    return f"[{colour}]{state}[/{colour}]" if colour else escape(state)


def print_job(job: dict[str, Any]) -> None:
    """A job as a short page: what it is, where it stands, and what to do if it failed."""
    out.print(f"[bold]{escape(job['name'])}[/bold]  {escape(job['id'])}  {state_text(job['state'])}")
    facts = [
        ("model", job.get("model")),
        ("method", job.get("method")),
        ("phase", job.get("phase")),
        ("health", job.get("health") if job.get("health") != "ok" else None),
        ("waiting", waiting_text(job)),
        ("steps", f"{job.get('step', 0)} of {job['planned_steps']}" if job.get("planned_steps") else None),
        ("time left", duration(job.get("eta_s"))),
        ("best", best_text(job)),
        ("latest", "  ".join(f"{name} {number(value)}" for name, value in shown_figures(job).items())),
        ("created", ago(job.get("created_at"))),
        ("finished", ago(job.get("finished_at"))),
    ]
    for name, value in facts:
        if value:
            out.print(f"  {name:<10} {escape(str(value))}", soft_wrap=True)
    print_cause(job)


def shown_figures(job: dict[str, Any]) -> dict[str, Any]:
    """The newest figures people look at; the rest are in the metrics."""
    latest = job.get("latest") or {}
    return {name: latest[name] for name in FIGURES if name in latest}


def print_cause(job: dict[str, Any]) -> None:
    cause = job.get("cause")
    if not cause:
        return
    err.print(f"  [red]{escape(cause['code'])}[/red]: {escape(cause['message'])}", soft_wrap=True)
    if cause.get("hint"):
        err.print(f"  what to do: {escape(cause['hint'])}", soft_wrap=True)


def print_error(error: ClientError) -> None:
    """An error with every fault it lists, each with its field or line."""
    if not isinstance(error, ApiError):
        err.print(f"[red]error[/red]: {escape(str(error))}", soft_wrap=True)
        return
    err.print(f"[red]{escape(error.code)}[/red]: {escape(error.message)}", soft_wrap=True)
    for detail in error.details:
        if detail.get("message") == error.message:
            continue  # said above
        where = detail.get("param") or (f"line {detail['line']}" if detail.get("line") else "")
        hint = f" ({detail['hint']})" if detail.get("hint") else ""
        err.print(f"  {escape(str(where))}: {escape(str(detail.get('message', '')) + hint)}", soft_wrap=True)


def best_text(job: dict[str, Any]) -> str | None:
    if job.get("best_step") is None:
        return None
    metric = job.get("metric_for_best") or "metric"
    return f"step {job['best_step']} ({metric} {number(job.get('best_value'))})"


def waiting_text(job: dict[str, Any]) -> str | None:
    if job.get("queue_position") is None:
        return job.get("waiting_reason")  # not in the queue's order yet: it waits for other jobs, or for its time
    reason = f", {job['waiting_reason']}" if job.get("waiting_reason") else ""
    return f"number {job['queue_position']} in the queue{reason}"


def number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def duration(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def ago(instant: str | None) -> str | None:
    if instant is None:
        return None
    passed = datetime.now(UTC) - datetime.fromisoformat(instant)
    return f"{duration(max(passed.total_seconds(), 0))} ago"


def size(n_bytes: int) -> str:
    amount = float(n_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
