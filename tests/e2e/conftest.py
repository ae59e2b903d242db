"""The service as a whole, once for all tests of this folder, with a few finished jobs that they share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live import Json, Service, body, chat_rows, running, write_rows
from trainyard import Client


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("live")) as service:
        yield service


@pytest.fixture
def client(live: Service) -> Iterator[Client]:
    with live.client() as client:
        yield client


@pytest.fixture(scope="session")
def chat(live: Service) -> str:
    """Id of a dataset of 40 short conversations."""
    file = write_rows(live.folder / "chat.jsonl", chat_rows(40))
    with live.client() as client:
        return str(client.push_dataset(file)["id"])


@pytest.fixture(scope="session")
def finished(live: Service, chat: str, shared_data: Path) -> dict[str, Json]:
    """Three succeeded jobs, sent together to a node of two slots: LoRA, full weights, and 500 rows of GSM8K."""
    rows = live.folder / "gsm8k.jsonl"
    lines = (shared_data / "gsm8k" / "train_first1000.jsonl").read_text(encoding="utf-8").splitlines()
    rows.write_text("\n".join(lines[:500]) + "\n", encoding="utf-8")
    with live.client() as client:
        gsm8k = client.push_dataset(rows, "gsm8k")["id"]
        columns = {"prompt": "question", "completion": "answer"}
        jobs = {
            "lora": client.submit(body(chat, name="lora", labels={"kind": "adapter"})),
            "full": client.submit(body(chat, name="full", adapter=None)),
            "gsm8k": client.submit(body(gsm8k, name="gsm8k", columns=columns, steps=4, training={"eval_steps": 2})),
        }
    return {name: live.wait_for(job["id"], "succeeded") for name, job in jobs.items()}
