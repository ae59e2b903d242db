"""The Python client against the real service: what its docstrings promise."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.live import Json, Service, body, until
from tests.servers import free_port
from trainyard import ApiError, Client, ConnectionFailed, JobFailed
from trainyard.errors import NotConfigured

pytestmark = [pytest.mark.train, pytest.mark.xdist_group("e2e")]


def test_it_finds_the_service_of_this_machine(live: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_DATA_DIR", str(live.data_dir))
    with Client() as client:
        assert client.url == live.url
        assert client.health()


def test_a_repeated_submit_with_a_key_returns_the_same_job(client: Client, chat: str) -> None:
    first = client.submit(body(chat, name="once"), idempotency_key="e2e-once")
    client.cancel(first["id"])
    again = client.submit(body(chat, name="once"), idempotency_key="e2e-once")
    assert again["id"] == first["id"]
    with pytest.raises(ApiError) as refused:
        client.submit(body(chat, name="another"), idempotency_key="e2e-once")
    assert refused.value.status in (409, 422)


def test_waiting_ends_by_success_failure_or_time(client: Client, chat: str, finished: dict[str, Json]) -> None:
    assert client.wait(finished["lora"]["id"])["state"] == "succeeded"
    spec = body(chat, name="nothing to learn")
    spec["dataset"]["max_length"] = 8
    job = client.submit(spec)
    with pytest.raises(TimeoutError, match=job["id"]):
        client.wait(job["id"], timeout_s=0)
    with pytest.raises(JobFailed, match="no_trainable_tokens") as failed:
        client.wait(job["id"], every_s=0.1)
    assert failed.value.job["cause"]["param"] == "dataset.max_length"


def test_following_what_is_over_yields_what_the_pages_hold(client: Client, finished: dict[str, Json]) -> None:
    job_id = finished["lora"]["id"]
    for feed in (client.events, client.metrics, client.logs):
        kept = list(feed(job_id))
        assert kept
        assert list(feed(job_id, follow=True)) == kept
        middle = kept[len(kept) // 2]["n"]
        assert list(feed(job_id, follow=True, after=middle)) == [item for item in kept if item["n"] > middle]


def test_lists_go_past_their_pages(client: Client, chat: str, finished: dict[str, Json]) -> None:
    """Every list is read to its end, whatever a page holds."""
    rows = [client.dataset_rows(chat, after=after, limit=15)["data"] for after in (0, 15, 30)]
    assert [len(page) for page in rows] == [15, 15, 10]
    listed = [job["id"] for job in client.jobs()]
    assert len(listed) == len(set(listed))
    assert {job["id"] for job in finished.values()} <= set(listed)
    assert [job["id"] for job in client.jobs(label=["kind:adapter"])] == [finished["lora"]["id"]]
    assert {job["state"] for job in client.jobs(state=["succeeded"])} == {"succeeded"}
    assert {path["path"] for path in client.artifacts(finished["lora"]["id"])} >= {
        "README.md", "trainer_state.json", "trainer_log.jsonl", "train_results.json", "eval_results.json",
        "all_results.json", "training_loss.png", "logs/attempt-1/rank0.log",
    }  # fmt: skip


def test_errors_are_the_services_own(client: Client, chat: str) -> None:
    with pytest.raises(ApiError) as missing:
        client.job("job_none")
    assert (missing.value.status, missing.value.code) == (404, "not_found")
    assert missing.value.request_id
    with pytest.raises(ApiError) as refused:
        client.submit(body(chat, name="x", training={"lerning_rate": 1, "max_steps": -5}))
    assert {detail["param"] for detail in refused.value.details} == {"training.lerning_rate", "training.max_steps"}
    with pytest.raises(ApiError, match="expected an id"):
        client.job("../models")


def test_nobody_there_and_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectionFailed, match="trainyard up"):
        Client(f"http://127.0.0.1:{free_port()}", "ty_key").job("job_1")
    monkeypatch.delenv("TRAINYARD_API_KEY", raising=False)
    with pytest.raises(NotConfigured, match="api-key"):
        Client(data_dir=tmp_path)


def test_a_key_is_asked_for_on_every_route_but_health(live: Service) -> None:
    for path in ("/v1/jobs", "/v1/datasets", "/v1/models", "/v1/nodes", "/v1/jobs/job_1/logs"):
        answer = httpx.get(live.url + path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthenticated"), path
    assert until(lambda: httpx.get(f"{live.url}/v1/health/live").is_success, "health")
