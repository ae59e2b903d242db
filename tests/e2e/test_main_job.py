"""From a POST to weights that load elsewhere and answer."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from tests.live import Json, Service
from trainyard import Client

pytestmark = [pytest.mark.train, pytest.mark.xdist_group("e2e")]

# In a process of its own, without network and without this project: what a person would write.
ANSWER = """
import sys
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base, downloaded = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(base or downloaded)
if base:
    model = PeftModel.from_pretrained(model, downloaded)
tokenizer = AutoTokenizer.from_pretrained(downloaded)
asked = tokenizer.apply_chat_template(
    [{"role": "user", "content": "Say 3"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
)
written = model.generate(**asked, max_new_tokens=5, min_new_tokens=5, do_sample=False)
print(written.shape[1] - asked["input_ids"].shape[1])
"""


def answer(base: Path | None, downloaded: Path, live: Service) -> str:
    env = live.env | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-I", "-c", ANSWER, str(base or ""), str(downloaded)]
    done = subprocess.run(command, env=env, cwd=live.folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_downloaded_adapter_loads_on_its_base_model_and_answers(
    live: Service, client: Client, finished: dict[str, Json], tmp_path: Path
) -> None:
    folder = client.download(finished["lora"]["id"], tmp_path / "tuned", "best")
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "chat_template.jinja"} <= {
        file.name for file in folder.iterdir()
    }
    assert not list(folder.rglob("*.part"))
    assert answer(live.folder / "tiny", folder, live) == "5"


def test_downloaded_full_weights_load_alone_and_answer(
    live: Service, client: Client, finished: dict[str, Json], tmp_path: Path
) -> None:
    folder = client.download(finished["full"]["id"], tmp_path / "tuned")
    assert (folder / "model.safetensors").read_bytes() != (live.folder / "tiny" / "model.safetensors").read_bytes()
    assert answer(None, folder, live) == "5"


def test_rows_with_other_column_names_train_and_download(
    client: Client, finished: dict[str, Json], tmp_path: Path
) -> None:
    job = finished["gsm8k"]
    assert job["resolved"]["data"]["n_train_rows"] + job["resolved"]["data"]["n_eval_rows"] == 500
    assert 0 < job["preflight"]["trained_tokens"] < job["preflight"]["total_tokens"]
    folder = client.download(job["id"], tmp_path / "tuned")
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["peft_type"] == "LORA"


@pytest.mark.parametrize("name", ["lora", "full", "gsm8k"])
def test_what_was_planned_was_done(client: Client, finished: dict[str, Json], name: str) -> None:
    job = finished[name]
    rows = [row for row in client.metrics(job["id"]) if row["kind"] == "train" and "loss" in row["values"]]
    assert [row["step"] for row in rows] == list(range(1, job["planned_steps"] + 1))
    assert job["step"] == job["planned_steps"]
    assert job["progress"] == 1.0
    assert all(row["values"]["loss"] > 0 for row in rows)


def test_best_and_last_are_separate_promises(client: Client, finished: dict[str, Json]) -> None:
    job = finished["lora"]
    listed = client.checkpoints(job["id"])
    assert [checkpoint["step"] for checkpoint in listed if checkpoint["is_best"]] == [job["best_step"]]
    assert [checkpoint["step"] for checkpoint in listed if checkpoint["is_last"]] == [job["planned_steps"]]


def test_two_jobs_run_at_once_on_two_slots(client: Client, finished: dict[str, Json]) -> None:
    """They shared a machine for a while, and no port was fought over."""
    first, second = finished["lora"], finished["full"]
    started = max(datetime.fromisoformat(job["started_at"]) for job in (first, second))
    ended = min(datetime.fromisoformat(job["finished_at"]) for job in (first, second))
    assert started < ended
    for job in (first, second):
        assert job["attempt"] == 1
        said = [event["message"] for event in client.events(job["id"])]
        said += [line["text"] for line in client.logs(job["id"])]
        assert not [text for text in said if "EADDRINUSE" in text or "already in use" in text.lower()]


def test_devices_are_free_afterwards(live: Service, finished: dict[str, Json]) -> None:
    assert live.used_devices() == []
    assert [live.run_processes(job["id"]) for job in finished.values()] == [[], [], []]
