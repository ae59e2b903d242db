"""`estimate`: what a job would need, before it is submitted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer

from trainyard import screen
from trainyard.commands.connection import connect
from trainyard.commands.job_files import JobFile, Set, push_local_datasets, read_job_file
from trainyard.commands.jobs import AsJson

app = typer.Typer()

PARTS = ("parameters", "gradients", "optimizer", "activations", "logits", "buffers")
FITS = {True: "yes", False: "no", None: "?"}


@app.command()
def estimate(
    file: JobFile,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Estimate memory, disk, tokens and time of a job file. No job is made; dataset files in it are uploaded."""
    body = read_job_file(file, set_)
    with connect() as client:
        push_local_datasets(client, body, file.parent)
        found = client.estimate(body)
    if as_json:
        screen.print_json(found)
        return
    screen.print_table(["strategy", "a device", "host", *PARTS, "a checkpoint", "fits"], _rows(found))
    for line in _lines(found):
        screen.out.out(line, highlight=False)


def _rows(found: dict[str, Any]) -> Iterable[list[Any]]:
    for one in found["strategies"]:
        memory, disk = one["memory"], one["checkpoint_bytes"]
        sizes = [memory["device_bytes"], memory["host_bytes"], *(memory[f"{part}_bytes"] for part in PARTS)]
        stage = "" if one["zero_stage"] is None else f" {one['zero_stage']}"
        offload = "" if one["offload"] == "none" else f" + {one['offload']} offload"
        mark = "* " if one == found["chosen"] else "  "
        name = f"{mark}{'ZeRO' if stage else 'ddp'}{stage}{offload}"
        yield [name, *map(screen.size, sizes), "?" if disk is None else screen.size(disk), FITS[one["fits"]]]


def _lines(found: dict[str, Any]) -> Iterable[str]:
    tokens, time = found["tokens"], found["time"]
    how = f"counted by {tokens['counted_by_job']}" if tokens["counted_by_job"] else "estimated"
    yield f"{found['planned_steps']:,} steps, {tokens['total']:,} tokens ({how})"
    if time:
        pace = f"{time['tokens_per_second']:,.0f} tokens/s"
        yield f"{screen.duration(time['seconds'])} at {pace}, as {time['job_id']} ran"
    yield from found["notes"]
