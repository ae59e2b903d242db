"""What the control plane does alone: status reads, metric intake, start."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil

from api.core import attempts, nodes
from api.core.db import Database
from api.core.nodes import DeviceFact
from api.core.schema import upgrade
from api.core.settings import Settings
from api.core.tables import Job
from tests.bench.service import REPOSITORY, answers, free_port, service, wait_for
from tests.servers import Missing, postgres
from trainer_core.contract import Metrics

READ_S = 5.0
CONNECTIONS = 8
N_RECORDS, BATCH = 20_000, 500
FIGURES = {f"figure_{n}": 0.123456789 * n for n in range(8)}


def status_reads() -> list[dict[str, Any]]:
    """GET of one job on one API process, keep-alive, as many as eight connections get answered."""
    with service() as running:
        body = {"model": "tiny", "dataset": {"train": running.dataset}, "adapter": {"type": "lora"}}
        made = running.client.submit({**body, "training": {"max_steps": 1}})
        running.client.wait(made["id"], timeout_s=120)
        key = (running.data_dir / "api-key").read_text().strip()
        port = int(running.url.rpartition(":")[2])
        times = asyncio.run(_read(port, f"/v1/jobs/{made['id']}", key))
    return [
        {"what": "status reads, one API process", "values": [len(times) / READ_S], "unit": "1/s"},
        {"what": "status read, p50", "values": [statistics.quantiles(times, n=100)[49] * 1e3], "unit": "ms"},
        {"what": "status read, p99", "values": [statistics.quantiles(times, n=100)[98] * 1e3], "unit": "ms"},
    ]


async def _read(port: int, path: str, key: str) -> list[float]:
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    times: list[float] = []
    end = time.perf_counter() + READ_S

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            started = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.split(b":")[1]))
            times.append(time.perf_counter() - started)
        writer.close()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return times


def metric_intake() -> list[dict[str, Any]]:
    """Points a second through `take_records`, eight figures a record, batches of 500."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as scratch:
        rows.append(_intake("SQLite", f"sqlite:///{scratch}/bench.db", Path(scratch)))
        try:
            with postgres() as url:
                rows.append(_intake("PostgreSQL", url, Path(scratch)))
        except Missing as reason:
            print(f"no PostgreSQL figure: {reason}", file=sys.stderr)
    return rows


def _intake(name: str, url: str, scratch: Path) -> dict[str, Any]:
    settings = Settings(data_dir=scratch, database_url=url)
    upgrade(settings)
    database = Database(url)
    attempt = _running_attempt(database)
    instant = datetime.now(UTC)
    records = [Metrics(seq=n, at=instant, step=n, values=FIGURES) for n in range(1, N_RECORDS + 1)]
    rates = []
    for start in range(0, N_RECORDS, N_RECORDS // 4):
        part = records[start : start + N_RECORDS // 4]
        began = time.perf_counter()
        for first in range(0, len(part), BATCH):
            with database.session() as session:
                attempts.take_records(session, attempt, part[first : first + BATCH])
        rates.append(len(part) * len(FIGURES) / (time.perf_counter() - began))
    database.close()
    return {"what": f"metric points taken in, {name}", "values": rates, "unit": "1/s", "aim": "tens of thousands"}


def _running_attempt(database: Database) -> str:
    with database.session() as session:
        node = nodes.register(session, "bench", [DeviceFact(index=0, kind="cpu", name="slot")], {}, {})
        job = Job(
            id="job_bench", name="bench", state="queued", method="sft", model_name="tiny", spec={}, resolved={},
            created_by="bench", queued_at=datetime.now(UTC), n_devices=1,
        )  # fmt: skip
        session.add(job)
        session.flush()
        attempt = attempts.place(session, job.id, node.id, [0])
        assert attempt is not None
        assert attempts.claim_launch(session, attempt.id)
        return attempt.id


def api_start() -> list[dict[str, Any]]:
    """Start of the API process to its first answer, and its memory then."""
    seconds, memory = [], []
    for _ in range(5):
        with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as scratch:
            upgrade(Settings(data_dir=Path(scratch)))
            port = free_port()
            env = {**os.environ, "TRAINYARD_DATA_DIR": scratch, "TRAINYARD_PORT": str(port)}
            began = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, "-m", "api", "serve"], cwd=REPOSITORY, env=env, stderr=subprocess.DEVNULL
            )
            try:
                wait_for(lambda port=port: answers(port))
                httpx.get(f"http://127.0.0.1:{port}/v1/health/ready").raise_for_status()
                seconds.append(time.perf_counter() - began)
                memory.append(psutil.Process(process.pid).memory_info().rss / 1e6)
            finally:
                process.terminate()
                process.wait(10)
    return [
        {"what": "API start to first answer", "values": seconds, "unit": "s", "aim": "2"},
        {"what": "API memory at start", "values": memory, "unit": "MB", "aim": "150"},
    ]
