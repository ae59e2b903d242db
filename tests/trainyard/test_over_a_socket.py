"""Both clients against a real service that restarts under them, and over a line that is cut."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.core.states import State
from tests.api.http.feeds import log
from tests.conftest import REPOSITORY
from tests.live import until
from tests.trainyard.service import KEY, PATH, ApiService, add_dataset, add_job, leave_results, reach, serving
from trainyard import ApiError, AsyncClient, Client, ConnectionFailed, JobFailed
from trainyard.errors import MissingPackage
from trainyard.feeds import Feed
from trainyard.results import LogLine

WEIGHTS = os.urandom(3_000_000)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[ApiService]:
    with serving(tmp_path_factory.mktemp("service"), sqlite_template) as service:
        yield service


@pytest.fixture(scope="module")
def dataset_id(service: ApiService) -> str:
    return add_dataset(service)


@pytest.fixture(scope="module")
def done(service: ApiService, dataset_id: str) -> str:
    job_id = add_job(service, dataset_id, "done", is_over=True)
    leave_results(service, job_id, {"adapter_config.json": b"{}", "deep/model.safetensors": WEIGHTS})
    return job_id


def cli(service: ApiService, *arguments: str, url: str = "") -> subprocess.Popen[str]:
    env = os.environ | {"TRAINYARD_URL": url or service.url, "TRAINYARD_API_KEY": KEY, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "trainyard", *arguments]
    return subprocess.Popen(command, cwd=REPOSITORY, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def restarted_while_followed(service: ApiService, job_id: str, seen: list[str]) -> None:
    """Two lines, a restart, two lines and the end; each only after what came before was seen."""
    log(service.database, job_id, "one", "two")
    until(lambda: len(seen) == 2, "two lines", within_s=20)
    service.stop()
    log(service.database, job_id, "three")
    service.start()
    until(lambda: len(seen) == 3, "the line written while the service was away", within_s=20)
    log(service.database, job_id, "four")
    reach(service.database, job_id, (State.SUCCEEDED,))


def a_running_job(service: ApiService, dataset_id: str) -> str:
    job_id = add_job(service, dataset_id, "runs", is_over=False)
    reach(service.database, job_id, PATH[1:-1])
    return job_id


def test_logs_f_survives_a_restart(service: ApiService, dataset_id: str) -> None:
    job_id = a_running_job(service, dataset_id)
    command = cli(service, "logs", "-f", job_id)
    seen: list[str] = []
    assert command.stdout is not None
    reader = threading.Thread(target=lambda: seen.extend(iter(command.stdout.readline, "")))  # type: ignore[union-attr]
    reader.start()
    restarted_while_followed(service, job_id, seen)
    assert command.wait(20) == 0
    reader.join()
    assert seen == ["[rank0] one\n", "[rank0] two\n", "[rank0] three\n", "[rank0] four\n"]
    assert command.stderr is not None
    assert command.stderr.read() == ""
    command.stdout.close()
    command.stderr.close()


def test_an_awaited_stream_survives_a_restart(service: ApiService, dataset_id: str) -> None:
    job_id = a_running_job(service, dataset_id)
    seen: list[str] = []

    async def follow() -> None:
        nonlocal seen
        async with AsyncClient(service.url, KEY) as client:
            lines = (await client.job(job_id)).logs(follow=True)
            async for line in lines:
                seen += [line["text"]]  # one by one: the test looks on

    reader = threading.Thread(target=lambda: asyncio.run(follow()))
    reader.start()
    restarted_while_followed(service, job_id, seen)
    reader.join(20)
    assert seen == ["one", "two", "three", "four"]


class CuttingProxy:
    """A line to the service that breaks after so many bytes of an answer, once for each number."""

    def __init__(self, port: int, *after: int) -> None:
        self.after, self.port = list(after), port
        self.ranges: list[str] = []
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        with near, socket.create_connection(("127.0.0.1", self.port)) as far:
            threading.Thread(target=self._up, args=(near, far), daemon=True).start()
            n_bytes = 0
            while chunk := _received(far):
                n_bytes += len(chunk)
                near.sendall(chunk)
                if self.after and n_bytes > self.after[0]:
                    self.after.pop(0)
                    near.shutdown(socket.SHUT_RDWR)
                    return

    def _up(self, near: socket.socket, far: socket.socket) -> None:
        while chunk := _received(near):
            lines = chunk.decode("latin-1").split("\r\n")
            self.ranges += [line for line in lines if line.lower().startswith("range:")]
            far.sendall(chunk)

    def close(self) -> None:
        self.listening.close()


def _received(line: socket.socket) -> bytes:
    try:
        return line.recv(65536)
    except OSError:
        return b""


@pytest.fixture
def cut(service: ApiService) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(service.port, 1_000_000, 800_000)
    yield proxy
    proxy.close()


def test_a_download_goes_on_over_cut_connections(cut: CuttingProxy, done: str, tmp_path: Path) -> None:
    """Twice cut; the bytes that came are not fetched again, and the whole has the digest the service lists."""
    with Client(cut.url, KEY) as client:
        n_bytes: list[int] = []
        client.download_best(client.job(done), tmp_path / "best", on_bytes=n_bytes.append)
    assert (tmp_path / "best" / "deep" / "model.safetensors").read_bytes() == WEIGHTS
    assert cut.after == []
    assert len(cut.ranges) == 2
    assert all(int(line.partition("=")[2].rstrip("-")) > 500_000 for line in cut.ranges)
    assert not list(tmp_path.rglob("*.part"))


def test_an_awaited_download_goes_on_too(cut: CuttingProxy, done: str, tmp_path: Path) -> None:
    async def download() -> None:
        async with AsyncClient(cut.url, KEY) as client:
            await client.download_best(done, tmp_path)

    asyncio.run(download())
    assert (tmp_path / "deep" / "model.safetensors").read_bytes() == WEIGHTS
    assert len(cut.ranges) == 2


def test_the_command_goes_on_where_it_was_cut_for_good(service: ApiService, done: str, tmp_path: Path) -> None:
    """After five cuts it ends with a sentence; the same command goes on from there."""
    proxy = CuttingProxy(service.port, *[400_000] * 5)
    first = cli(service, "download", done, "--to", str(tmp_path / "tuned"), url=proxy.url)
    out, err = first.communicate(timeout=60)
    assert (first.returncode, out) == (1, "")
    assert "the same command goes on from here" in " ".join(err.split())
    second = cli(service, "download", done, "--to", str(tmp_path / "tuned"), url=proxy.url)
    second.communicate(timeout=60)
    proxy.close()
    assert second.returncode == 0
    assert (tmp_path / "tuned" / "deep" / "model.safetensors").read_bytes() == WEIGHTS
    assert int(proxy.ranges[-1].partition("=")[2].rstrip("-")) > 1_000_000


def test_everything_awaited(service: ApiService, dataset_id: str, done: str) -> None:
    async def use() -> None:
        async with AsyncClient(service.url, KEY) as client:
            assert (await client.health())["status"] == "ok"
            pushed = await client.push_dataset(service.folder / "chat.jsonl", name="again")
            assert pushed["n_rows"] == 20
            job = await client.submit({"name": "awaited", "model": "tiny", "dataset": {"train": dataset_id}})
            assert job.state == "validating"
            assert [one.name async for one in client.jobs(name="awaited")] == ["awaited"]
            assert (await job.cancel()).is_over
            with pytest.raises(JobFailed, match="cancelled"):
                await job.wait()
            ended = await client.wait(done)
            assert ended.best_step == 10
            assert [row["values"]["loss"] async for row in ended.metrics()] == [2.5, 2.0]
            assert list((await ended.metrics().to_pandas())["loss"]) == [2.5, 2.0]
            with pytest.raises(ApiError, match="no checkpoint '7'"):
                await client.pick(done, "7")
            with pytest.raises(ApiError) as missing:
                await client.job("job_none")
            assert missing.value.status == 404

    asyncio.run(use())


def test_nobody_answers_is_said_by_both(service: ApiService) -> None:
    async def ask() -> None:
        async with AsyncClient("http://127.0.0.1:9", KEY) as client:
            await client.health()

    with pytest.raises(ConnectionFailed, match="trainyard up"):
        asyncio.run(ask())
    with pytest.raises(ConnectionFailed, match="trainyard up"), Client("http://127.0.0.1:9", KEY) as client:
        client.health()


def test_waiting_has_an_end(service: ApiService, dataset_id: str) -> None:
    with service.client() as client:
        job = client.submit({"model": "tiny", "dataset": {"train": dataset_id}})
        with pytest.raises(TimeoutError, match=job.id):
            job.wait(every_s=0.01, timeout_s=0.05)


def test_a_job_is_waited_for_across_a_restart(service: ApiService, dataset_id: str) -> None:
    job_id = a_running_job(service, dataset_id)
    states: list[str] = []
    with service.client() as client:
        waiter = threading.Thread(target=lambda: states.append(client.wait(job_id, every_s=0.05).state))
        waiter.start()
        service.stop()
        with pytest.raises(ConnectionFailed):  # a single call does not wait
            client.job(job_id)
        service.start()
        reach(service.database, job_id, (State.SUCCEEDED,))
        waiter.join(20)
    assert states == ["succeeded"]


def test_a_table_needs_pandas_and_says_so(service: ApiService, done: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with service.client() as client, pytest.raises(MissingPackage, match=r"trainyard\[pandas\]"):
        client.metrics(done).to_pandas()


def test_what_is_not_finite_is_a_float_in_a_table() -> None:
    rows = [{"n": 1, "step": 4, "values": {"loss": None}, "nonfinite": {"loss": "NaN"}}]
    table = Feed(iter(rows)).to_pandas()
    assert table["loss"].isna().all()
    assert str(table["loss"].dtype) == "float64"


def test_types_say_what_is_answered(service: ApiService, done: str) -> None:
    with service.client() as client:
        lines: list[LogLine] = list(client.logs(done))
        assert [line["rank"] for line in lines] == [0, 0]
