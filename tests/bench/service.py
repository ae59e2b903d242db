"""A service of its own for a bench: a fresh data folder, a free port, the tiny model, a few hundred rows."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.tiny import make_tiny
from trainyard import Client

REPOSITORY = Path(__file__).resolve().parents[2]
READY_WITHIN_S = 60.0


@dataclass(frozen=True)
class Service:
    client: Client
    url: str
    data_dir: Path
    dataset: str


@contextmanager
def service(n_rows: int = 300) -> Iterator[Service]:
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as scratch, serving(Path(scratch), n_rows) as running:
        yield running


@contextmanager
def serving(scratch: Path, n_rows: int = 300) -> Iterator[Service]:
    """A service on the data folder in `scratch`, made the first time; what it made stays there when it has ended."""
    data_dir = scratch / "data"
    port = free_port()
    command = [sys.executable, "-m", "trainyard", "up", "--data-dir", str(data_dir), "--port", str(port)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=REPOSITORY, start_new_session=True
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: (data_dir / "api-key").exists() and answers(port))
        with Client(url, data_dir=data_dir) as client:
            if not (scratch / "tiny").exists():
                client.add_model("tiny", str(make_tiny(scratch / "tiny")))
            rows = scratch / "rows.jsonl"
            rows.write_text("".join(json.dumps(chat(n)) + "\n" for n in range(n_rows)))
            yield Service(client, url, data_dir, client.push_dataset(rows)["id"])
    finally:
        process.terminate()
        process.wait(30)


def chat(n: int) -> dict[str, list[dict[str, str]]]:
    question = f"What is {n} plus {n + 1}? " + "Please think. " * (n % 7)
    turns = {"user": question, "assistant": f"{n} plus {n + 1} is {2 * n + 1}."}
    return {"messages": [{"role": role, "content": content} for role, content in turns.items()]}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(is_so: object, within_s: float = READY_WITHIN_S) -> None:
    assert callable(is_so)
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so within {within_s} s")
        time.sleep(0.02)


def run_bare(run_dir: Path, n_processes: int, threads: int) -> None:
    """The trainer on a run folder by torchrun alone, as a person would start it."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n_processes}"]
    command += ["-m", "trainer_core", "run", str(run_dir)]
    env = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "CUDA_VISIBLE_DEVICES": "",
        "DS_ACCELERATOR": "cpu",
        "TOKENIZERS_PARALLELISM": "false",
    }
    subprocess.run(command, cwd=REPOSITORY, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
