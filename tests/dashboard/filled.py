"""The API alone, over a database that a test fills: jobs, curves and logs of any size, without training anything."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import insert

from api.core import nodes
from api.core.db import Database
from api.core.ids import new_id
from api.core.logs import LogLine, append
from api.core.settings import Settings
from api.core.states import State
from api.core.tables import Attempt, BaseModel, Event, Job, JobLabel, MetricRow, Node
from tests.servers import free_port

REPOSITORY = Path(__file__).resolve().parents[2]
T0 = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
HOSTILE = "</script><b>x"
Json = dict[str, Any]


class Filled:
    """One API process, its database, and an HTTP client with the first key."""

    def __init__(self, folder: Path) -> None:
        self.data_dir = folder / "data"
        self.settings = Settings(data_dir=self.data_dir, min_free_disk_bytes=0)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        outside = {name: value for name, value in os.environ.items() if not name.startswith("TRAINYARD_")}
        self.env = outside | {"TRAINYARD_DATA_DIR": str(self.data_dir), "TRAINYARD_PORT": str(self.port)}
        self.log = folder / "api.log"

    def start(self) -> None:
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "api", "serve", "--migrate"],
                cwd=REPOSITORY, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip
        give_up_at = time.monotonic() + 60
        while not self._is_ready():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < give_up_at, self.log.read_text()[-3000:]
            time.sleep(0.1)
        self.database = Database(self.settings.database)
        self.key = (self.data_dir / "api-key").read_text().strip()
        self.http = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=60)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/v1/health/ready").status_code == 200
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(30) in (0, -signal.SIGTERM)
        self.http.close()
        self.database.close()

    def add_model(self, name: str = "tiny") -> None:
        with self.database.session() as session:
            session.add(BaseModel(id=new_id("model"), name=name, source="/models/tiny", details={"n_parameters": 1000}))

    def add_node(self, name: str = "node one", n_devices: int = 2) -> str:
        facts = {"cores": 8, "load": [3.2, 2, 1], "memory_bytes": 10**10, "memory_available_bytes": 4 * 10**9}
        found = [nodes.DeviceFact(index=index, kind="cpu", name="CPU slot") for index in range(n_devices)]
        with self.database.session() as session:
            return nodes.register(session, name, found, facts | {"versions": {"torch": "2"}}, {}).id

    def add_dataset(self, name: str = "rows.jsonl", n_rows: int = 45) -> str:
        rows = "".join(
            json.dumps({"prompt": f"{HOSTILE} {n}", "completion": "It is so. " * (n % 9 + 1)}) + "\n"
            for n in range(n_rows)
        )
        answer = self.http.post("/v1/datasets", files={"file": (name, rows.encode())})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def add_job(self, name: str = "a job", state: State = State.SUCCEEDED, **values: Any) -> str:
        return self.add_jobs([{"name": name, "state": state.value, **values}])[0]

    def add_jobs(self, many: Sequence[Json]) -> list[str]:
        usual: Json = {
            "method": "sft", "model_name": "tiny", "created_by": "test", "created_at": T0, "queued_at": T0,
            "spec": {"model": "tiny", "dataset": {"train": "rows.jsonl"}, "adapter": None, "training": {},
                     "parallel": {}, "continue_from": None},
            "resolved": {"metric_for_best": "eval_loss", "training": {"learning_rate": 1e-4}, "padding": "x" * 3000},
            "labels": {}, "latest": {},
        }  # fmt: skip
        rows = [{"id": new_id("job"), **usual, **values} for values in many]
        labels = [
            {"job_id": row["id"], "key": key, "value": text} for row in rows for key, text in row["labels"].items()
        ]
        with self.database.session() as session:
            for row in rows:  # rows need not have the same keys
                session.add(Job(**row))
            session.flush()
            if labels:
                session.execute(insert(JobLabel), labels)
        return [row["id"] for row in rows]

    def add_curve(
        self, job_id: str, n_steps: int, spikes: dict[int, float | str] | None = None, scale: float = 1
    ) -> None:
        """Figures at every step: a falling loss with `spikes` put in, an evaluation every tenth of the way."""
        with self.database.session() as session:
            job = session.get_one(Job, job_id)
            rows = list(_curve(job_id, job.last_metric_n, n_steps, spikes or {}, scale))
            for start in range(0, len(rows), 20_000):
                session.execute(insert(MetricRow), rows[start : start + 20_000])
            job.last_metric_n = rows[-1]["n"]
            job.latest = {"loss": scale, "learning_rate": 1e-4}

    def add_log(self, job_id: str, texts: Sequence[str], ranks: int = 2) -> None:
        lines = [LogLine(T0, f"rank{at % ranks}", at % ranks, text) for at, text in enumerate(texts)]
        with self.database.session() as session:
            append(session, job_id, 1, lines)

    def add_attempt(self, job_id: str, node_id: str, number: int = 1, outcome: Json | None = None) -> None:
        with self.database.session() as session:
            session.add(
                Attempt(
                    id=new_id("att"), job_id=job_id, number=number, state="ended", node_id=node_id, devices=[0, 1],
                    outcome=outcome or {"result": "succeeded"}, started_at=T0, ended_at=T0 + timedelta(seconds=90),
                )
            )  # fmt: skip
            session.get_one(Job, job_id).attempt = number
            session.get_one(Node, node_id)

    def add_events(self, job_id: str, messages: Sequence[str]) -> None:
        usual: Json = {"job_id": job_id, "at": T0, "attempt": 1, "level": "info", "kind": "told", "data": {}}
        rows = [{**usual, "n": n, "message": text} for n, text in enumerate(messages, 1)]
        with self.database.session() as session:
            session.execute(insert(Event), rows)
            session.get_one(Job, job_id).last_event_n = len(rows)


def _curve(job_id: str, n_before: int, n_steps: int, spikes: dict[int, float | str], scale: float) -> Iterator[Json]:
    for step in range(n_before + 1, n_before + n_steps + 1):
        loss = spikes.get(step, scale * (0.2 + math.exp(-3 * step / n_steps) + 0.05 * math.sin(step)))
        values: Json = {
            "loss": loss, "learning_rate": 1e-4 / (1 + step / n_steps), "grad_norm": 1 + math.sin(step) / 2,
            "tokens_per_second": 900.0 + step % 7, "memory_bytes": 2.5e9, "memory_bytes_rank0": 2.5e9,
        }  # fmt: skip
        if step % max(1, n_steps // 10) == 0:
            values["eval_loss"] = scale * (0.25 + math.exp(-3 * step / n_steps))
        yield {
            "job_id": job_id, "n": step, "at": T0 + timedelta(seconds=step), "attempt": 1, "seq": step,
            "kind": "train", "step": step, "epoch": None, "values": values, "is_superseded": False,
        }  # fmt: skip


@contextmanager
def filled(folder: Path) -> Iterator[Filled]:
    service = Filled(folder)
    service.start()
    try:
        service.add_model()
        yield service
    finally:
        service.stop()
