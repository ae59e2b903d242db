"""The API as a process: what it costs to start, and that it stops at once with streams open."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import httpx
import pytest

from api.core.db import Database
from tests.api.core.rows import make_job
from tests.api.http.feeds import say
from tests.conftest import REPOSITORY

HEAVY = {"torch", "transformers", "accelerate", "deepspeed", "peft", "datasets", "numpy", "matplotlib", "tokenizers"}
MAX_RSS_KIB = 150 * 1024
# Time on the processor to the first answer, the least of some starts: wall time would measure what else the machine
# does, and a busy machine's shared caches add to any one of them.
MAX_CPU_S = 2.0
N_STARTS = 4


def environment(data_dir: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRAINYARD_")}
    return kept | {"TRAINYARD_DATA_DIR": str(data_dir), "TRAINYARD_PORT": "0"}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str, Path]]:
    """`python -m api serve --migrate` on an empty folder: the process, its URL, the folder."""
    command = [sys.executable, "-m", "api", "serve", "--migrate"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment(tmp_path / "data"), stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    try:
        yield process, url_from(process.stdout), tmp_path / "data"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def url_from(stdout: IO[str]) -> str:
    for line in stdout:
        if found := re.search(r"http://\S+", line):
            return found[0]
    raise AssertionError("the server did not start")


def test_no_training_library_is_imported() -> None:
    code = "import sys, api.__main__; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "fastapi" in out.split()
    assert HEAVY.isdisjoint(out.split())


def test_a_start_takes_little_of_the_processor(tmp_path: Path) -> None:
    env = environment(tmp_path / "data")
    subprocess.run([sys.executable, "-m", "api", "migrate"], cwd=REPOSITORY, env=env, check=True, timeout=60)
    taken: list[float] = []
    while len(taken) < N_STARTS and not (taken and min(taken) < MAX_CPU_S):
        command = [sys.executable, "-m", "api", "serve"]
        with subprocess.Popen(command, cwd=REPOSITORY, env=env, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert httpx.get(f"{url_from(process.stdout)}/v1/health/ready").status_code == 200
            taken.append(cpu_seconds(process.pid))
            process.terminate()
    assert min(taken) < MAX_CPU_S


def test_it_starts_small_answers_and_stops_at_once_with_a_stream_open(
    served: tuple[subprocess.Popen[str], str, Path],
) -> None:
    process, url, data_dir = served
    key = (data_dir / "api-key").read_text().strip()
    headers = {"Authorization": f"Bearer {key}"}
    assert httpx.get(f"{url}/v1/health/ready").status_code == 200
    assert httpx.get(f"{url}/v1/jobs", headers=headers).json()["data"] == []
    status = Path(f"/proc/{process.pid}/status").read_text()
    resident = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert resident is not None
    assert int(resident[1]) < MAX_RSS_KIB
    job_id = job_in(data_dir)
    with httpx.stream(
        "GET", f"{url}/v1/jobs/{job_id}/events", headers=headers | {"Accept": "text/event-stream"}
    ) as open_:
        assert open_.status_code == 200
        assert "event: event" in next(open_.iter_text())
        asked = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(10)
    assert time.monotonic() - asked < 2
    assert process.returncode in (0, -signal.SIGTERM)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def job_in(data_dir: Path) -> str:
    """A job's row in the served database, with an event."""
    from_test = Database(f"sqlite:///{data_dir / 'trainyard.db'}")
    job_id = make_job(from_test)
    say(from_test, job_id, "hello")
    from_test.close()
    return job_id


@pytest.mark.parametrize(("command", "code"), [(["config"], 0), (["migrate"], 0), (["nothing"], 2)])
def test_commands_end_with_their_code(tmp_path: Path, command: list[str], code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "api", *command],
        cwd=REPOSITORY,
        env=environment(tmp_path) | {"TRAINYARD_BROKER_URL": "redis://user:hidden@localhost/0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "hidden" not in done.stdout + done.stderr
