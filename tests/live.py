"""The real service for tests: `python -m trainyard up` in a folder of its own, and the proof that it leaves nothing.

It is used from outside alone: HTTP, the command line, signals and /proc.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.servers import free_port
from tests.tiny import make_tiny
from trainyard import Client
from trainyard.client import TERMINAL

REPOSITORY = Path(__file__).resolve().parents[1]
# Generous, because the machine may be busy with other tests; nothing waits for it where all is well.
PATIENCE_S = 150.0
FAST = {
    "TRAINYARD_BEAT_EVERY_S": "0.5",
    "TRAINYARD_LOOK_EVERY_S": "0.5",
    "TRAINYARD_SHIP_EVERY_S": "0.1",
    "TRAINYARD_STOP_GRACE_S": "15",
    "TRAINYARD_RETRY_BACKOFF_S": "0.2",
    "TRAINYARD_CPU_SLOTS": "2",
    "TRAINYARD_CPU_THREADS_PER_SLOT": "1",
    "TRAINYARD_HUB_ONLINE": "false",
}
MARKER = "TRAINYARD_RUN="
Json = dict[str, Any]
T = TypeVar("T")


class Service:
    """One `trainyard up`, its data folder, and what a person would do with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        # COLUMNS and LINES are those of whoever runs the tests, a pipe has none.
        ours = ("TRAINYARD_", "PYTEST_", "COLUMNS", "LINES")
        outside = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        scripts = str(Path(sys.executable).parent)
        self.env = outside | FAST | {"TRAINYARD_DATA_DIR": str(self.data_dir), "HOME": str(folder / "home")}
        self.env["PATH"] = f"{scripts}:{outside.get('PATH', os.defpath)}"
        Path(self.env["HOME"]).mkdir(exist_ok=True)
        self.log = folder / "up.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "trainyard", "up", "--data-dir", str(self.data_dir), "--port", str(self.port)]
        with self.log.open("ab") as out:
            start = out.tell()
            self._process = subprocess.Popen(
                command, cwd=REPOSITORY, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        process = self._process
        until(
            lambda: process.poll() is not None or b"Trainyard is up at" in self.log.read_bytes()[start:],
            f"the service to be up ({self.log})",
        )
        assert process.poll() is None, self.log.read_text(errors="replace")[-3000:]

    def stop(self) -> None:
        """SIGTERM, as a system would; runs go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(60) == 0
        self._process = None

    def client(self) -> Client:
        return Client(self.url, data_dir=self.data_dir)

    def cli(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """The command as a person types it, in the test's own folder."""
        return subprocess.run(
            [sys.executable, "-m", "trainyard", *arguments],
            cwd=self.folder,
            env=self.env | (env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def job_file(self, name: str, spec: Json) -> str:
        """A job file in the folder where commands are typed; YAML reads JSON too."""
        (self.folder / f"{name}.yaml").write_text(json.dumps(spec))
        return f"{name}.yaml"

    def typed(self, *arguments: str) -> subprocess.Popen[str]:
        """A command that goes on beside the test; both outputs come through its stdout."""
        return subprocess.Popen(
            [sys.executable, "-m", "trainyard", *arguments],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_for(self, job_id: str, *states: str, what: Callable[[Json], bool] = lambda _: True) -> Json:
        """The job once it is in one of `states` and `what` holds. A job that ends otherwise fails the test at once."""
        with self.client() as client:

            def seen() -> Json | None:
                job = client.job(job_id)
                if job["state"] in states and what(job):
                    return job
                assert job["state"] not in TERMINAL, (states, job["state"], job["cause"], self.log_tail(job_id))
                return None

            return until(seen, f"{job_id} to be {' or '.join(states)}")

    def log_tail(self, job_id: str) -> list[str]:
        with self.client() as client:
            return [line["text"] for line in client.logs(job_id)][-15:]

    def run_processes(self, job_id: str) -> list[int]:
        """Living processes that carry the mark of one of the job's attempts."""
        plans = (self.data_dir / "runs" / job_id).glob("attempt-*/launch.json")
        marks = [f"{MARKER}{json.loads(plan.read_text())['attempt_id']}" for plan in plans]
        return [pid for pid in living() if any(mark in environ(pid).split("\0") for mark in marks)]

    def processes(self) -> list[int]:
        """Everything that lives and has anything to do with the data folder."""
        name = str(self.data_dir)
        return [pid for pid in living() if name in environ(pid) or name in command_line(pid) or name in working(pid)]

    def used_devices(self) -> list[Json]:
        with self.client() as client:
            return [device for node in client.nodes() for device in node["devices"] if device["job_id"]]

    def close(self) -> None:
        """Cancel what is unfinished, stop, and prove that no process is left."""
        if self._process is None:
            self.start()
        with self.client() as client:
            unfinished = [job["id"] for job in client.jobs() if job["state"] not in TERMINAL]
            for job_id in unfinished:
                client.cancel(job_id)
            until(lambda: all(client.job(job_id)["state"] in TERMINAL for job_id in unfinished), "the jobs to end")
        self.stop()
        until(lambda: not self.processes(), "every process to be gone", within_s=20.0, shown=self.described)

    def described(self) -> str:
        return "; ".join(f"{pid}: {command_line(pid)}" for pid in self.processes())


@contextmanager
def running(folder: Path) -> Iterator[Service]:
    """The service from its first answer to the proof that nothing of it is left; `tiny` is registered."""
    service = Service(folder)
    service.start()
    try:
        with service.client() as client:
            client.add_model("tiny", str(make_tiny(folder / "tiny")))
        yield service
    finally:
        service.close()


def until(
    seen: Callable[[], T | None], what: str, *, within_s: float = PATIENCE_S, shown: Callable[[], str] = lambda: ""
) -> T:
    """The first truthy answer of `seen`; fails after `within_s` and says what was waited for."""
    give_up_at = time.monotonic() + within_s
    while not (answer := seen()):
        assert time.monotonic() < give_up_at, f"waited {within_s:.0f} s for {what}. {shown()}"
        time.sleep(0.1)
    return answer


def chat_rows(n_rows: int) -> list[Json]:
    return [
        {"messages": [{"role": "user", "content": f"Say {i}"}, {"role": "assistant", "content": f"It is {i}."}]}
        for i in range(n_rows)
    ]


def write_rows(file: Path, rows: Sequence[Json]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def body(
    dataset: str,
    *,
    name: str,
    steps: int = 6,
    n_processes: int = 1,
    columns: dict[str, str] | None = None,
    training: Json | None = None,
    **more: object,
) -> Json:
    """A small job: every step is logged, and evaluated and saved in the middle and at the end."""
    half = max(1, steps // 2)
    cadences = {"logging_steps": 1, "eval_steps": half, "save_steps": half}
    data: Json = {"train": dataset, "eval_fraction": 0.1, "max_length": 256}
    return {
        "name": name,
        "model": "tiny",
        "dataset": data | ({"columns": columns} if columns else {}),
        "adapter": {"type": "lora", "r": 4},
        "training": {"max_steps": steps, "per_device_train_batch_size": 2} | cadences | (training or {}),
        "parallel": {"n_processes": n_processes},
        **more,
    }


def living() -> list[int]:
    """Process ids but those of zombies, which only wait for a parent to look."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _state(int(entry)) not in ("Z", "X", "")]


def _state(pid: int) -> str:
    return read(pid, "stat").rpartition(")")[2].strip()[:1]


def environ(pid: int) -> str:
    return read(pid, "environ")


def command_line(pid: int) -> str:
    return read(pid, "cmdline").replace("\0", " ")


def working(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def read(pid: int, what: str) -> str:
    try:
        return Path(f"/proc/{pid}/{what}").read_text(errors="replace")
    except OSError:  # it has gone meanwhile
        return ""
