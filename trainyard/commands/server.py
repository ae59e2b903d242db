"""`up`, `api`, `worker`, `migrate`, `config`: the service itself, started as programs of their own.

The public face never imports the server: it starts `python -m api` and `python -m worker`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Annotated

import httpx
import typer

from trainyard import location, screen

app = typer.Typer()

READY_WITHIN_S = 60.0
STOP_WITHIN_S = 10.0
RESTART_AFTER_S = 2.0

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder for everything the service keeps.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the API; 0 takes a free one.")]
Host = Annotated[str, typer.Option("--host", help="Address to bind; loopback unless told.")]


@app.command()
def up(data_dir: DataDir = None, port: Port = 8000, host: Host = "127.0.0.1") -> None:
    """Start everything on this machine: API, dashboard, scheduler, Celery worker and node agent."""
    folder = use(data_dir)
    port = port or _free_port(host)
    os.environ.update(TRAINYARD_HOST=host, TRAINYARD_PORT=str(port))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if _run("api", "migrate") != 0:
        raise typer.Exit(1)
    url = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{port}"
    (folder / location.URL_FILE).write_text(url + "\n")
    keeper = Keeper({"api": ["api", "serve"], "worker": ["worker", "run"]})
    signal.signal(signal.SIGTERM, keeper.stop)
    signal.signal(signal.SIGINT, keeper.stop)
    keeper.start()
    if keeper.wait_until_ready(url):
        screen.out.print(f"Trainyard is up at [bold]{url}[/bold]  (dashboard and API)")
        screen.out.print(f"key: {folder / location.KEY_FILE}   stop with Ctrl-C; runs go on and are found again")
    raise typer.Exit(keeper.keep())


@app.command()
def api(data_dir: DataDir = None) -> None:
    """Start the API and dashboard alone (database and broker by TRAINYARD_DATABASE_URL, TRAINYARD_BROKER_URL)."""
    use(data_dir)
    _become("api", "serve")


@app.command()
def worker(data_dir: DataDir = None) -> None:
    """Start this machine as a node: agent, scheduler and Celery worker."""
    use(data_dir)
    _become("worker", "run")


@app.command()
def migrate(data_dir: DataDir = None) -> None:
    """Bring the database to this release's schema."""
    use(data_dir)
    _become("api", "migrate")


@app.command()
def config(data_dir: DataDir = None) -> None:
    """Show the resolved settings, secrets hidden."""
    use(data_dir)
    _become("api", "config")


class Keeper:
    """Keeps a few child programs running: restarts one that dies, ends them all when told to stop."""

    def __init__(self, programs: dict[str, list[str]]) -> None:
        self._programs = programs
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._stopping = False
        self._exit_code = 0

    def start(self) -> None:
        for name, arguments in self._programs.items():
            self._children[name] = subprocess.Popen([sys.executable, "-m", *arguments], start_new_session=True)

    def stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        self._stopping = True

    def wait_until_ready(self, url: str) -> bool:
        """Whether the API answers in time; a child that dies before that ends everything."""
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline and not self._stopping:
            dead = [name for name, child in self._children.items() if child.poll() is not None]
            if dead:
                screen.err.print(f"[red]{dead[0]} ended at start[/red]; its own message is above")
                self._exit_code, self._stopping = 1, True
                return False
            try:
                if httpx.get(f"{url}/v1/health/ready", timeout=2.0).is_success:
                    return True
            except httpx.TransportError:
                time.sleep(0.1)
        if not self._stopping:
            screen.err.print(f"[red]the API was not ready within {READY_WITHIN_S:.0f} s[/red]")
            self._exit_code, self._stopping = 1, True
        return False

    def keep(self) -> int:
        """Runs until told to stop; returns the exit code."""
        while not self._stopping:
            for name, child in self._children.items():
                if child.poll() is not None:
                    screen.err.print(f"{name} ended with exit code {child.returncode}; starting it again")
                    time.sleep(RESTART_AFTER_S)
                    arguments = self._programs[name]
                    self._children[name] = subprocess.Popen([sys.executable, "-m", *arguments], start_new_session=True)
            time.sleep(0.2)
        self._end_children()
        return self._exit_code

    def _end_children(self) -> None:
        for child in self._children.values():
            child.terminate()
        deadline = time.monotonic() + STOP_WITHIN_S
        for child in self._children.values():
            try:
                child.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def use(data_dir: Path | None) -> Path:
    folder = (data_dir or location.data_dir()).expanduser().resolve()
    os.environ["TRAINYARD_DATA_DIR"] = str(folder)
    return folder


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as probe:
        return int(probe.getsockname()[1])


def _run(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", *arguments], check=False).returncode


def _become(*arguments: str) -> None:
    """Replaces this process, so that signals and the exit code are the program's own."""
    os.execv(sys.executable, [sys.executable, "-m", *arguments])
