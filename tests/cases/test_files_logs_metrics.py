"""What a run writes and what a reader asks for, at their worst: floods, odd figures, odd ranges, odd cursors."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.testclient import TestClient

from api.core import attempts
from api.core.db import Database
from api.core.states import State
from api.core.tables import Job
from tests.api.core.rows import make_run
from tests.api.files.conftest import OK3, jsonl
from tests.api.http.conftest import AUTH
from tests.api.http.feeds import strict
from tests.worker.conftest import data_dir, world
from tests.worker.world import World, wait_for
from worker.tail import RecordTail

__all__ = ["data_dir", "world"]
AT = "2026-01-01T00:00:00Z"
SURROUNDED = "</script><b>x"
FLOOD = (
    b"".join(b"\r %5d/10000 [##########]" % n for n in range(10_000))
    + b"\n"
    + b"y" * 5_000_000
    + b"\n\x1b[31mred\x1b[0m \xff\xfe\0 \x1b]0;title\x07"
    + SURROUNDED.encode()
    + b"\n\x1b[2J\x1b[H\x08\x08 cleared\n"
)


def test_a_flooded_log_is_short_plain_text_and_ends_with_its_last_line(world: World) -> None:
    job_id, attempt_id = world.start(steps=200)
    world.wait_for_step(job_id, 1)
    with open(world.run_dir(attempt_id) / "logs" / "rank0.log", "ab") as log:
        log.write(FLOOD)
    world.wait_until(job_id, State.SUCCEEDED)
    texts = [line["text"] for line in world.log_lines(job_id) if line["rank"] == 0]
    assert len(json.dumps(texts)) < 200_000
    assert texts[-1] == "step 200"
    said = "\n".join(texts)
    for part in ("10000 [####", "[cut: this line had 5,000,000 bytes]", f"red \ufffd\ufffd {SURROUNDED}", "cleared"):
        assert part in said
    assert not {character for character in said if ord(character) < 32} - {"\n", "\t"}


def test_a_stored_log_does_not_grow_with_the_file_it_was_made_of(world: World) -> None:
    """Whoever held the log open may still write; what is stored keeps the size and digest it is listed with."""
    job_id, attempt_id = world.start(steps=3)
    late = os.open(wait_for_log(world, attempt_id), os.O_WRONLY | os.O_APPEND)
    world.wait_until(job_id, State.SUCCEEDED)
    os.write(late, b"a word after the end\n")
    os.close(late)
    artifact = world.artifacts(job_id)["logs/attempt-1/rank0.log"]
    assert world.storage.size(artifact.storage_key) == artifact.size_bytes


def wait_for_log(world: World, attempt_id: str) -> Path:
    log = world.run_dir(attempt_id) / "logs" / "rank0.log"
    return wait_for(lambda: log if log.exists() else None, str(log))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("record", "kept"),
    [
        ({"step": 1, "values": {"loss": "NaN", "a/b": 0.1}}, {"loss": None, "a/b": 0.1}),
        ({"step": 1, "values": {"loss": "Infinity", "up": "-Infinity"}}, {"loss": None, "up": None}),
        ({"step": -1, "values": {"loss": 5e-324, "large": 1.7976931348623157e308}}, None),
        ({"step": 1, "values": {"loss": 0.1 + 0.2}}, {"loss": 0.1 + 0.2}),
        ({"step": 1, "values": {"k" * 10_000: 1.0}}, {"k" * 10_000: 1.0}),
        ({"step": 1, "values": {SURROUNDED: 1.0, "a\nb": 2.0}}, {SURROUNDED: 1.0, "a\nb": 2.0}),
        ({"step": 1, "values": {"loss": "nan?"}}, None),
        ({"step": 1, "values": {"loss": {"deep": 1}}}, "refused"),
        ({"step": "1; DROP TABLE", "values": {}}, "refused"),
    ],
    ids=["nan", "infinities", "minus-one", "exact", "long-key", "odd-keys", "text", "object", "step"],
)
def test_any_figure_a_trainer_writes_leaves_the_answers_strict(
    client: TestClient,
    database: Database,
    job: dict[str, Any],
    tmp_path: Path,
    record: dict[str, Any],
    kept: dict[str, Any] | str | None,
) -> None:
    run = make_run(database)
    with database.session() as session:
        made, ran = session.get_one(Job, job["id"]), session.get_one(Job, run.job_id)
        ran.spec, ran.resolved = made.spec, made.resolved
    lines = [
        {"type": "started", "world_size": 1, "device": "cpu"},
        {"type": "metrics", **record},
        {"type": "metrics", "step": 2, "values": {"loss": 0.5}},
        {"type": "metrics", "step": 2, "values": {"loss": 0.25}},
    ]
    events = tmp_path / "events.jsonl"
    events.write_text("".join(json.dumps({"seq": seq, "at": AT, **line}) + "\n" for seq, line in enumerate(lines, 1)))
    with database.session() as session:
        attempts.take_records(session, run.attempt_id, RecordTail(events).read())
    for path in ("", "/metrics", "/metrics/series?names=loss", "/events"):
        answer = client.get(f"/v1/jobs/{run.job_id}{path}")
        assert answer.status_code == 200, answer.text
        strict(answer.text)
    rows = client.get(f"/v1/jobs/{run.job_id}/metrics").json()["data"]
    assert [row["values"] for row in rows[-2:]] == [{"loss": 0.5}, {"loss": 0.25}], "what follows is taken"
    assert len(rows) == (2 if kept == "refused" else 3)
    if isinstance(kept, dict):
        assert rows[0]["values"] == kept


@pytest.fixture
def raw(app: FastAPI) -> Iterator[Callable[..., tuple[int, dict[str, str], bytes]]]:
    """A request by its bytes, over a real socket: (status, headers, body)."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    place = urlsplit(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}").netloc

    def ask(path: str, *headers: tuple[str, bytes | str], method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(place)
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in [*AUTH.items(), *headers]:
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, content

    yield ask
    server.should_exit = True
    thread.join()


QUERIES = [
    "/jobs?limit=0", "/jobs?limit=-1", "/jobs?limit=1001", "/jobs?limit=" + "9" * 400, "/jobs?limit=1e3",
    "/jobs?after=x", "/jobs?after=" + "a" * 9000, "/jobs?after=%00", "/jobs?label=a", "/jobs?state=RUNNING",
    "/datasets?limit=99999999999999999999", "/datasets?after=../../etc/passwd",
    "/jobs/JOB/events?after=99999999999999999999", "/jobs/JOB/events?after=-1",
    "/jobs/JOB/logs?after=9223372036854775807",
    "/jobs/JOB/metrics?after=9223372036854775808", "/jobs/JOB/metrics/series?max_points=99999999999",
    "/jobs/JOB/metrics/series?names=", "/jobs/JOB/metrics?names=" + "a" * 5000, "/jobs/JOB/logs?rank=-1",
    "/jobs/JOB/logs?rank=99999999999999999999", "/jobs/JOB/logs?tail=0", "/jobs/JOB/logs?tail=99999999999",
    "/jobs/JOB/logs?search=" + "x" * 10000,
]  # fmt: skip
NO_SUCH = [
    "/jobs/nope", "/jobs/" + "j" * 5000, "/jobs/%00", "/jobs/job_" + "i" * 22, "/jobs/..%2f..", "/models/..",
    "/models/%00", "/models/%2e%2e%2f", "/jobs/JOB/checkpoints/9999999999999999999999/archive",
    "/jobs/JOB/checkpoints/-1/archive", "/jobs/JOB/checkpoints/%00/archive", "/jobs/JOB%20", "//jobs",
    "/jobs/JOB/checkpoints/best%0d%0aX-Evil:1/archive", "/jobs/JOB/artifacts/a%0d%0aX-Evil:1",
]  # fmt: skip


def test_no_query_or_path_makes_the_service_fail(raw: Callable[..., Any], job: dict[str, Any]) -> None:
    for status, paths in ((422, QUERIES), (404, NO_SUCH)):
        for path in paths:
            found, headers, content = raw("/v1" + path.replace("JOB", job["id"]))
            assert (found, path) == (status, path), content
            assert set(json.loads(content)["error"]) == {"code", "message", "param", "details"}
            assert "x-evil" not in headers
            assert len(content) < 12_000
    for pattern in ("%25", "%ff", "%00", "%ed%a0%80", "%5f", "%5c"):
        for path in (f"/jobs?name={pattern}x", f"/jobs?label={pattern}:x", f"/jobs/{job['id']}/logs?search={pattern}x"):
            found, _, content = raw("/v1" + path)
            assert (found, json.loads(content)["data"]) == (200, []), path


def test_no_range_or_header_makes_a_download_wrong(raw: Callable[..., Any], upload: Callable[..., Any]) -> None:
    content = jsonl(OK3)
    path = f"/v1/datasets/{upload(content).json()['id']}/content"
    for value in (b"bytes=0-", b"bytes=-1", b"bytes=5-2", b"bytes=a-b", b"bytes=", b"lines=1-2", b"bytes=0-\xff",
                  b"bytes=18446744073709551616-", b"bytes=-18446744073709551616", b"bytes=" + b"0-," * 999 + b"0-",
                  b"bytes=1_0-2_0", b"Bytes=0-3", b"bytes=+1-3"):  # fmt: skip
        status, headers, body = raw(path, ("Range", value))
        if status == 206:
            first, _, rest = headers["content-range"].removeprefix("bytes ").partition("-")
            assert body == content[int(first) : int(rest.split("/")[0]) + 1], value
        else:
            assert (status, body) == (200, content), value
    for value in (b"bytes=-0", b"bytes=99999999-"):
        assert raw(path, ("Range", value))[0] == 416
    for value in ("a\tb", "a" * 9000, "a%0d%0ab", b"\xff", "</script>"):
        _, headers, _ = raw(path, ("X-Request-Id", value))
        assert headers["x-request-id"].startswith("req_"), value
    for cursor in ("99999999999999999999", "-1", "abc", b"\xb2"):
        stream = (("Accept", "text/event-stream"), ("Last-Event-ID", cursor))
        assert raw("/v1/jobs/nope/events", *stream)[0] in (404, 422)
