"""The command line as a person types it: exit codes, JSON that parses, one sentence where something is wrong."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.live import Json, Service, body, chat_rows, write_rows
from tests.servers import free_port
from tests.tiny import make_tiny

pytestmark = [pytest.mark.train, pytest.mark.xdist_group("e2e")]
Done = subprocess.CompletedProcess[str]


def parsed(done: Done) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_one_sentence(done: Done, *parts: str) -> None:
    """Exit code 1, nothing on stdout, a sentence on stderr and no traceback."""
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip()) < 400, done.stderr
    for part in parts:
        assert part in " ".join(done.stderr.split()), done.stderr


def test_following_a_job_to_its_success(live: Service) -> None:
    """The file beside the job file is uploaded; --set changes a field; the exit code is the job's."""
    write_rows(live.folder / "rows.jsonl", chat_rows(20))
    file = live.job_file("good", body("rows.jsonl", name="typed"))
    done = live.cli("submit", file, "--follow", "--set", "training.max_steps=4", "--set", "labels.team=a=b")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "uploaded rows.jsonl" in done.stderr
    assert "4/4" in done.stdout
    assert "Succeeded" in done.stdout
    assert "Phase:" not in done.stdout
    [job] = parsed(live.cli("jobs", "--label", "team:a=b", "--json"))
    assert (job["name"], job["state"], job["step"]) == ("typed", "succeeded", 4)


def test_following_a_job_to_its_failure(live: Service) -> None:
    file = live.job_file("bad", body("rows.jsonl", name="nothing to learn"))
    done = live.cli("submit", file, "--follow", "--set", "dataset.max_length=8", "--json")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    job = json.loads(done.stdout)
    assert (job["state"], job["cause"]["code"]) == ("failed", "no_trainable_tokens")


def test_a_refused_job_names_every_field(live: Service, chat: str) -> None:
    spec = body(chat, name="refused", training={"lerning_rate": 0.1}, n_processes=64)
    done = live.cli("submit", live.job_file("refused", spec))
    assert done.returncode == 1
    assert "training.lerning_rate" in done.stderr
    assert "learning_rate" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["submit", "none.yaml"], "none.yaml"),
        (["submit", "good.yaml", "--set", "training.max_steps"], "FIELD=VALUE"),
        (["frobnicate"], "No such command"),
        (["logs"], "Missing argument"),
    ],
)  # fmt: skip
def test_a_mistyped_command_is_a_usage_error(live: Service, arguments: list[str], part: str) -> None:
    live.job_file("good", body("rows.jsonl", name="typed"))
    done = live.cli(*arguments)
    assert done.returncode == 2
    assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_every_json_parses(live: Service, finished: dict[str, Json]) -> None:
    job_id = finished["lora"]["id"]
    shown = parsed(live.cli("show", job_id, "--json"))
    assert shown["id"] == job_id
    assert shown["checkpoints"][-1]["is_last"]
    assert job_id in [job["id"] for job in parsed(live.cli("jobs", "--json", "--limit", "200"))]
    assert [node["state"] for node in parsed(live.cli("nodes", "--json"))] == ["ready"]
    assert "tiny" in [model["name"] for model in parsed(live.cli("models", "list", "--json"))]
    assert parsed(live.cli("datasets", "list", "--json"))
    for command, field in (("logs", "text"), ("metrics", "values")):
        lines = live.cli(command, job_id, "--json").stdout.splitlines()
        assert lines
        assert all(field in json.loads(line) for line in lines), f"{command}: one object a line"
    assert len(live.cli("logs", job_id, "--follow", "--json").stdout.splitlines()) == len(
        live.cli("logs", job_id, "--json").stdout.splitlines()
    )


def test_ids_are_printed_whole(live: Service, finished: dict[str, Json]) -> None:
    """They are there to be copied, however narrow the terminal is."""
    for command in (["jobs", "--limit", "200"], ["show", finished["lora"]["id"]]):
        assert finished["lora"]["id"] in live.cli(*command, env={"COLUMNS": "60"}).stdout
    assert finished["lora"]["dataset"]["train"] in live.cli("datasets", "list", env={"COLUMNS": "60"}).stdout


def test_figures_for_people(live: Service, finished: dict[str, Json]) -> None:
    said = live.cli("metrics", finished["lora"]["id"]).stdout
    assert "step      6" in said
    assert "loss" in said
    assert "[rank0]" in live.cli("logs", finished["lora"]["id"]).stdout
    assert "cpu:1" in live.cli("nodes").stdout


def test_cancel(live: Service, chat: str) -> None:
    job = parsed(live.cli("submit", live.job_file("cancelled", body(chat, name="typed away")), "--json"))
    assert parsed(live.cli("cancel", job["id"], "--json"))["state"] in ("cancelled", "cancelling")
    live.wait_for(job["id"], "cancelled")
    assert_one_sentence(live.cli("cancel", job["id"]), "already_finished")


def test_a_cut_download_is_resumed(live: Service, finished: dict[str, Json], tmp_path: Path) -> None:
    job_id = finished["full"]["id"]
    done = live.cli("download", job_id, "last", "--to", str(tmp_path / "tuned"))
    assert done.stdout.strip() == str(tmp_path / "tuned")
    weights = tmp_path / "tuned" / "model.safetensors"
    whole = weights.read_bytes()
    weights.with_name("model.safetensors.part").write_bytes(whole[: len(whole) // 2])
    weights.unlink()
    assert live.cli("download", job_id, "last", "--to", str(tmp_path / "tuned")).returncode == 0
    assert weights.read_bytes() == whole
    weights.with_name("model.safetensors.part").write_bytes(b"x" * 100)
    weights.unlink()
    spoilt = live.cli("download", job_id, "last", "--to", str(tmp_path / "tuned"))
    assert_one_sentence(spoilt, "sha256")
    assert not weights.exists()
    assert_one_sentence(live.cli("download", job_id, "77"), "no checkpoint '77'")


def test_a_bad_file_is_refused_with_its_lines(live: Service) -> None:
    bad = live.folder / "bad.jsonl"
    bad.write_text('{"prompt": "a", "completion": "b"}\n\n{"prompt": "a", "completion": 4}\n{"prompt": \n')
    done = live.cli("datasets", "push", "bad.jsonl")
    assert done.returncode == 1
    assert "line 3" in done.stderr
    assert "line 4" in done.stderr
    assert "Traceback" not in done.stderr
    good = parsed(live.cli("datasets", "push", "rows.jsonl", "--name", "shown", "--json"))
    assert (good["name"], good["n_rows"], good["format"]) == ("shown", 20, "messages")
    assert '"Say 0"' in live.cli("datasets", "rows", good["id"], "--limit", "1").stdout
    assert live.cli("datasets", "delete", good["id"]).returncode == 0
    assert_one_sentence(live.cli("datasets", "rows", good["id"]), "not_found")


def test_a_model_that_is_none_is_refused(live: Service) -> None:
    (live.folder / "empty").mkdir(exist_ok=True)
    assert_one_sentence(live.cli("models", "add", "empty", "empty"), "config.json")
    make_tiny(live.folder / "other", seed=1)
    assert_one_sentence(live.cli("models", "add", "tiny", "other"), "tiny")
    assert live.cli("models", "add", "tiny", "tiny").returncode == 0, "the same again is no conflict"


def test_secrets_are_hidden(live: Service) -> None:
    secret = {"TRAINYARD_DATABASE_URL": "postgresql+psycopg://yard:s3cret@db.example/yard",
              "TRAINYARD_BROKER_URL": "redis://:pass:w@rd@queue:6379/0"}  # fmt: skip
    done = live.cli("config", env=secret)
    assert done.returncode == 0, done.stderr
    assert "db.example/yard" in done.stdout
    for word in ("s3cret", "w@rd", "pass:w"):
        assert word not in done.stdout + done.stderr
    query = {"TRAINYARD_DATABASE_URL": "postgresql+psycopg://db.example/yard?user=yard&password=s3cret"}
    shown = parsed(live.cli("config", env=query))["database_url"]
    assert shown == "postgresql+psycopg://db.example/yard?user=yard&password=***"


def test_a_wrong_key(live: Service) -> None:
    assert_one_sentence(live.cli("jobs", env={"TRAINYARD_API_KEY": "ty_wrong"}), "key")


def test_no_key_at_all(live: Service, tmp_path: Path) -> None:
    assert_one_sentence(live.cli("--home", str(tmp_path), "jobs"), "found no API key", "TRAINYARD_API_KEY")


def test_a_service_that_is_down(live: Service) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    (live.folder / "unsent.jsonl").write_text('{"text": "a row"}\n')
    for command in (["jobs"], ["logs", "job_1", "--json"], ["nodes"], ["datasets", "push", "unsent.jsonl"]):
        assert_one_sentence(live.cli("--url", nobody, *command), "nothing answers at", "trainyard up")
