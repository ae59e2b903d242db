"""Exports of jobs that really ran: asked for and downloaded by the command, loaded by plain libraries alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live import Json, Service, until
from trainyard import Client

pytestmark = [pytest.mark.train, pytest.mark.xdist_group("e2e")]

# What a person would write: the merged model, and the adapter on its base.
COMPARE = """
import sys, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base, adapter, merged = sys.argv[1:]
ids = AutoTokenizer.from_pretrained(merged)("What is 1+2?", return_tensors="pt")["input_ids"]
with torch.no_grad():
    alone = AutoModelForCausalLM.from_pretrained(merged)(ids).logits
    on_base = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)(ids).logits
    untuned = AutoModelForCausalLM.from_pretrained(base)(ids).logits
print(float((alone - on_base).abs().max()), float((alone - untuned).abs().max()))
"""


def test_a_merged_model_needs_no_base(live: Service, finished: dict[str, Json], tmp_path: Path) -> None:
    job_id, merged = finished["lora"]["id"], tmp_path / "merged"
    done = live.cli("export", job_id, "--kind", "merged", "--to", str(merged), "--max-shard-size", "50KB")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "proved: merged differs by" in done.stderr
    assert len(list(merged.glob("model-*.safetensors"))) > 1
    with live.client() as client:
        adapter = client.download(job_id, tmp_path / "adapter", "best")
    command = [sys.executable, "-I", "-c", COMPARE, str(live.folder / "tiny"), str(adapter), str(merged)]
    env = live.env | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    compared = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert compared.returncode == 0, compared.stderr
    same, other = map(float, compared.stdout.split())
    assert same < 1e-6
    assert other > 1e-4


def test_no_file_of_an_export_names_a_folder_of_the_service(
    live: Service, client: Client, finished: dict[str, Json], tmp_path: Path
) -> None:
    job_id = finished["lora"]["id"]
    export = client.wait_export(job_id, client.export(job_id, "adapter", "last")["id"])
    assert export["state"] == "succeeded", export["cause"]
    folder = client.download_export(export, tmp_path / "adapter")
    assert {"adapter_config.json", "adapter_model.safetensors", "README.md", "tokenizer.json"} <= {
        file.name for file in folder.iterdir()
    }
    for file in folder.iterdir():
        assert str(live.folder).encode() not in file.read_bytes(), file.name
    told = [event["message"] for event in client.events(job_id) if event["kind"] == "export"]
    assert any("Proving what was written" in message for message in told)


def test_a_kind_that_cannot_be_is_one_sentence(live: Service, finished: dict[str, Json]) -> None:
    done = live.cli("export", finished["full"]["id"], "--kind", "merged")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "use kind full" in " ".join(done.stderr.split())


def test_a_cancelled_export_ends_at_once(live: Service, client: Client, finished: dict[str, Json]) -> None:
    job_id = finished["full"]["id"]
    made = client.export(job_id, "full", "last")
    until(lambda: client.exports(job_id)[0]["state"] != "queued", "the export to begin")
    assert client.cancel_export(job_id, made["id"])["state"] == "cancelled"
    until(lambda: not [pid for pid in live.processes() if made["id"] in _command(pid)], "its process to be gone")
    client.delete_export(job_id, made["id"])
    assert client.exports(job_id) == []


def test_an_estimate_is_typed_and_knows_the_pace_of_earlier_runs(live: Service, finished: dict[str, Json]) -> None:
    job = finished["lora"]
    body = {name: job[name] for name in ("model", "dataset", "adapter", "training", "parallel")}
    done = live.cli("estimate", live.job_file("estimated", body), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["tokens"]["total"] > 0
    assert found["tokens"]["counted_by_job"]
    assert found["time"]["tokens_per_second"] > 0
    assert found["chosen"]["fits"] is True
    shown = live.cli("estimate", "estimated.yaml")
    assert shown.returncode == 0, shown.stderr
    assert "ZeRO 3 + all offload" in shown.stdout
    assert "* " in shown.stdout


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
