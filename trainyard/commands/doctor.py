"""`doctor`: what is wrong with an installation. Each line says ok, warn or fail, and what to do.

The service's side and the training libraries are looked at by programs of their own: none is imported here.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Annotated, TypedDict

import typer
from rich.markup import escape

from trainyard import screen
from trainyard.commands.connection import chosen, connect
from trainyard.commands.server import DataDir, use
from trainyard.errors import ApiError, ClientError

app = typer.Typer()

PYTHON = (3, 11)
TORCH = (
    "import json, torch\n"
    "print(json.dumps({'version': torch.__version__, 'cuda': torch.version.cuda, "
    "'n_devices': torch.cuda.device_count() if torch.cuda.is_available() else 0}))"
)
TRAINER = ("transformers", "accelerate", "peft", "deepspeed", "safetensors")
SERVER = ("fastapi", "uvicorn", "sqlalchemy", "celery")
PROGRAM_WITHIN_S = 120.0
COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


class Finding(TypedDict):
    name: str
    level: str
    found: str
    todo: str


@app.command()
def doctor(
    data_dir: DataDir = None, as_json: Annotated[bool, typer.Option("--json", help="A list of findings.")] = False
) -> None:
    """Find what is wrong with this installation. Exit code 1 when a line says fail."""
    use(data_dir or chosen.data_dir)
    found: list[Finding] = []
    for finding in _findings():
        found.append(finding)
        if not as_json:
            _print(finding)
    if as_json:
        screen.print_json(found)
    raise typer.Exit(1 if any(finding["level"] == "fail" for finding in found) else 0)


def _findings() -> Iterator[Finding]:
    yield _python()
    has_server = importlib.util.find_spec("api") is not None and importlib.util.find_spec("fastapi") is not None
    if has_server:
        yield _packages("server packages", SERVER, "pip install 'trainyard[server]'", "fail")
        yield from _of_the_server()
        yield _packages("trainer packages", TRAINER, "pip install 'trainyard[trainer]' on every node", "warn")
        gpus = _gpus()
        yield gpus
        yield _torch(has_gpu=gpus["level"] == "ok" and not gpus["found"].startswith("no "))
    yield _service()


def _finding(name: str, level: str, found: str, todo: str = "") -> Finding:
    return {"name": name, "level": level, "found": found, "todo": todo}


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < PYTHON:
        return _finding("Python", "fail", f"{version} at {sys.executable}", "use Python 3.11 or newer")
    return _finding("Python", "ok", f"{version} at {sys.executable}")


def _packages(name: str, wanted: tuple[str, ...], todo: str, level: str) -> Finding:
    missing = [package for package in wanted if importlib.util.find_spec(package) is None]
    if missing:
        return _finding(name, level, f"missing: {', '.join(missing)}", todo)
    return _finding(name, "ok", ", ".join(f"{package} {importlib.metadata.version(package)}" for package in wanted))


def _of_the_server() -> Iterator[Finding]:
    done = _run(sys.executable, "-m", "api", "doctor")
    try:
        yield from json.loads(done.stdout)
    except json.JSONDecodeError:
        said = (done.stderr or done.stdout).strip()[-500:]
        yield _finding("settings", "fail", said, "correct the setting that is named; `trainyard config` shows them all")


def _gpus() -> Finding:
    if shutil.which("nvidia-smi") is None:
        return _finding("GPUs", "ok", "no NVIDIA driver here: this machine trains on its CPU slots")
    done = _run("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no GPU was found"]
        return _finding("GPUs", "fail", f"nvidia-smi: {said[0]}", "mend or reload the NVIDIA driver")
    return _finding("GPUs", "ok", "; ".join(lines))


def _torch(*, has_gpu: bool) -> Finding:
    done = _run(sys.executable, "-c", TORCH)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return _finding("torch", "warn", said[-1], "nodes need it: pip install 'trainyard[trainer]'")
    facts = json.loads(done.stdout)
    found = f"{facts['version']}, CUDA {facts['cuda'] or 'not built in'}, {facts['n_devices']} devices"
    if has_gpu and not facts["n_devices"]:
        todo = "install the build for your CUDA version, or a newer driver: torch does not see the GPUs of this machine"
        return _finding("torch", "fail", found, todo)
    return _finding("torch", "ok", found)


def _service() -> Finding:
    try:
        with connect() as client:
            client.health()
            next(client.jobs(), None)
            return _finding("service", "ok", f"{client.url} answers and takes the key")
    except ApiError as error:
        todo = "use another key (TRAINYARD_API_KEY or --api-key)" if error.status in (401, 403) else "look into its log"
        return _finding("service", "fail", f"{error.code}: {error.message}", todo)
    except ClientError as error:
        return _finding("service", "warn", str(error), "start it with `trainyard up`, or name it by TRAINYARD_URL")


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_WITHIN_S, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"{command[0]} did not end in {PROGRAM_WITHIN_S:.0f} s")


def _print(finding: Finding) -> None:
    level = finding["level"]
    line = f"[{COLOURS[level]}]{level:<4}[/{COLOURS[level]}]  {finding['name']}: {escape(finding['found'])}"
    screen.out.print(line, soft_wrap=True)
    if finding["todo"]:
        screen.out.print(f"      what to do: {escape(finding['todo'])}", soft_wrap=True)
