"""Traces for the simulator: JSON lines or CSV, one job a row, every fault with its line. Also `4x8` for nodes."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from api.core.errors import Invalid
from api.core.planning.model import FreeNode
from api.core.planning.simulation import TraceJob

REQUIRED = ("submit_s", "devices", "duration_s")
OPTIONAL = ("id", "project", "user", "priority", "preemptible", "time_limit_s", "device")
WORDS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
NODES = re.compile(r"^(\d+)x(\d+)(?::(cpu|cuda))?$")


def read_trace(path: Path) -> list[TraceJob]:
    """The jobs of a .jsonl or .csv file. Raises Invalid, which names the line and what was expected there."""
    if path.suffix not in (".jsonl", ".csv"):
        raise Invalid(f"{path.name}: expected a .jsonl or .csv file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{path}: cannot be read as UTF-8 text ({error})") from error
    rows = _json_rows(text) if path.suffix == ".jsonl" else _csv_rows(text)
    jobs: dict[str, TraceJob] = {}
    for line, row in rows:
        job = _job(line, row)
        if job.job_id in jobs:
            raise Invalid(f"line {line}: the id {job.job_id!r} stands here a second time")
        jobs[job.job_id] = job
    if not jobs:
        raise Invalid(f"{path.name}: holds no jobs; expected one a row with {', '.join(REQUIRED)}")
    return list(jobs.values())


def read_nodes(text: str) -> list[FreeNode]:
    """`4x8,2x4:cuda`: four nodes of eight devices and two of four GPUs. Raises Invalid."""
    nodes: list[FreeNode] = []
    for piece in text.split(","):
        match = NODES.fullmatch(piece.strip())
        if match is None or int(match[1]) < 1 or not 1 <= int(match[2]) <= 1024:
            raise Invalid(f"nodes: expected COUNTxDEVICES[:cpu|:cuda], as in 4x8,2x4:cuda; found {piece.strip()!r}")
        for _ in range(int(match[1])):
            name, devices = f"node{len(nodes) + 1:04}", tuple(range(int(match[2])))
            nodes.append(FreeNode(name, name, devices, devices, match[3] or "cpu"))
    return nodes


def _json_rows(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, raw in enumerate(text.splitlines(), 1):
        if not raw.strip():
            continue
        try:
            row = json.loads(raw)
        except ValueError as error:
            raise Invalid(f"line {line}: is not JSON ({error})") from error
        if not isinstance(row, dict):
            raise Invalid(f"line {line}: expected an object, found {type(row).__name__}")
        yield line, row


def _csv_rows(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(text.splitlines())
    for row in reader:
        if None in row or None in row.values():
            raise Invalid(f"line {reader.line_num}: has another number of fields than the first line")
        yield reader.line_num, {key: value for key, value in row.items() if value != ""}


def _job(line: int, row: Mapping[str, Any]) -> TraceJob:
    known = (*REQUIRED, *OPTIONAL)
    if unknown := [key for key in row if key not in known]:
        raise Invalid(f"line {line}: knows no field {unknown[0]!r}; the fields are {', '.join(known)}")
    if missing := [key for key in REQUIRED if key not in row]:
        raise Invalid(f"line {line}: lacks {missing[0]}")
    kind = row.get("device")
    if kind not in (None, "cpu", "cuda"):
        raise Invalid(f"line {line}: device: expected cpu or cuda, found {kind!r}")
    limit = row.get("time_limit_s")
    return TraceJob(
        job_id=str(row.get("id", f"line {line}")),
        submit_s=_number(line, "submit_s", row["submit_s"], least=0),
        n_devices=_whole(line, "devices", row["devices"], least=1),
        duration_s=_number(line, "duration_s", row["duration_s"], least=0),
        project=str(row.get("project", "default")),
        user=str(row.get("user", "")),
        priority=_whole(line, "priority", row.get("priority", 0), least=-1000),
        is_preemptible=_word(line, row.get("preemptible", False)),
        limit_s=None if limit is None else _number(line, "time_limit_s", limit, least=0),
        kind=kind,
    )


def _number(line: int, name: str, value: object, *, least: float) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or number < least:
        raise Invalid(f"line {line}: {name}: expected a number of at least {least:g}, found {value!r}")
    return number


def _whole(line: int, name: str, value: object, *, least: int) -> int:
    number = _number(line, name, value, least=least)
    if not number.is_integer() or number > 10**6:
        raise Invalid(f"line {line}: {name}: expected a whole number of at most a million, found {value!r}")
    return int(number)


def _word(line: int, value: object) -> bool:
    found = value if isinstance(value, bool) else WORDS.get(str(value).lower())
    if found is None:
        raise Invalid(f"line {line}: preemptible: expected true or false, found {value!r}")
    return found
