"""Exports on a node, with a stand-in for the trainer: files are kept, crashes tried again, cancels heard."""

from __future__ import annotations

import hashlib
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from api.core import exports
from api.core.auth import Actor
from api.core.export_tables import Export
from api.core.ids import new_id
from api.core.states import State
from api.core.tables import Checkpoint
from tests.worker.world import World, wait_for
from trainer_core.contract import MANIFEST_NAME, Manifest, ManifestFile
from worker.exports import ExportRunner

# Speaks as the trainer does, then does what the rest of the program says.
PROGRAM = """
import json, os, sys, time
from pathlib import Path
root = Path(sys.argv[1])
order = json.loads((root / "export.json").read_text())
assert (Path(order["checkpoint"]) / "weights.bin").read_bytes() == b"weights"
record = {"seq": 1, "at": "2026-01-01T00:00:00Z", "type": "note", "message": "Merging " + order["kind"]}
(root / "events.jsonl").write_text(json.dumps(record) + "\\n")
(root / "output").mkdir()
(root / "output" / "model.safetensors").write_bytes(b"merged")
def report(**parts):
    (root / "export-report.json").write_text(json.dumps(parts))
"""
ACTOR = Actor(id="key", name="ann", role="admin")


def runner(world: World, tmp_path: Path, program: str) -> ExportRunner:
    file = tmp_path / f"{new_id('p')}.py"
    file.write_text(PROGRAM + program)
    return ExportRunner(world.db, world.storage, world.settings, (sys.executable, str(file)))


def ask(world: World) -> tuple[str, str]:
    """A job with one checkpoint, and an export of it that waits."""
    job_id = world.submit(state=State.SUCCEEDED)
    content = b"weights"
    listed = [ManifestFile(path="weights.bin", size_bytes=7, sha256=hashlib.sha256(content).hexdigest())]
    manifest = Manifest(
        job_id=job_id, attempt=1, step=5, world_size=1, strategy="ddp", adapter="lora", total_steps=5, files=listed
    )
    text, prefix = manifest.model_dump_json().encode(), f"jobs/{job_id}/checkpoints/5/attempt-1"
    for name, body in (("weights.bin", content), (MANIFEST_NAME, text)):
        draft = world.settings.data_dir / "draft"
        draft.write_bytes(body)
        world.storage.put(f"{prefix}/{name}", draft, link=False)
    row = Checkpoint(
        id=new_id("ckpt"), job_id=job_id, attempt=1, step=5, storage_prefix=prefix, size_bytes=7,
        manifest=manifest.model_dump(mode="json"), manifest_sha256=hashlib.sha256(text).hexdigest(),
    )  # fmt: skip
    with world.db.session() as session:
        session.add(row)
    with world.db.session() as session:
        spec = exports.ExportSpec(kind="merged", checkpoint="last")
        return job_id, exports.create(session, job_id, spec, ACTOR).id


def row_of(world: World, export_id: str) -> Export:
    with world.db.reading() as session:
        return session.get_one(Export, export_id)


def messages(world: World, job_id: str) -> list[str]:
    return [event.message for event in world.events(job_id, "export")]


def left_of(world: World, job_id: str, export_id: str) -> list[Any]:
    stored = list(world.storage.list(f"jobs/{job_id}/exports"))
    return [*stored, *(world.settings.runs_dir / job_id).glob(f"*{export_id}*")]


def test_the_files_are_kept_and_told(both_worlds: World, tmp_path: Path) -> None:
    world = both_worlds
    job_id, export_id = ask(world)
    program = 'report(ok=True, proof={"merged": {"difference": 0.0, "allowed": 1.0}})'
    assert runner(world, tmp_path, program).run_one() == export_id
    row = row_of(world, export_id)
    assert (row.state, row.size_bytes, row.proof["merged"]["allowed"]) == ("succeeded", 6, 1.0)
    [file] = row.files
    assert file == {"path": "model.safetensors", "size_bytes": 6, "sha256": hashlib.sha256(b"merged").hexdigest()}
    assert b"".join(world.storage.open(f"{row.storage_prefix}/model.safetensors")) == b"merged"
    assert "Export as merged: Merging merged" in messages(world, job_id)
    assert not list((world.settings.runs_dir / job_id).glob("exp_*"))
    assert runner(world, tmp_path, program).run_one() is None


def test_a_refusal_of_the_trainer_fails_it_once(world: World, tmp_path: Path) -> None:
    job_id, export_id = ask(world)
    cause = {"code": "checkpoint_invalid", "message": "logits differ by 3"}
    runner(world, tmp_path, f"report(ok=False, cause={cause!r})").run_one()
    row = row_of(world, export_id)
    assert (row.state, row.n_tries, row.cause and row.cause["message"]) == ("failed", 1, "logits differ by 3")
    assert left_of(world, job_id, export_id) == []


def test_a_crash_is_tried_again(world: World, tmp_path: Path) -> None:
    job_id, export_id = ask(world)
    runner(world, tmp_path, "os.abort()").run_one()
    assert row_of(world, export_id).state == "queued"
    runner(world, tmp_path, "report(ok=True)").run_one()
    assert (row_of(world, export_id).state, row_of(world, export_id).n_tries) == ("succeeded", 2)
    assert any("try 2 of 3" in message for message in messages(world, job_id))


def test_crashes_without_end_fail_it_with_its_last_words(world: World, tmp_path: Path) -> None:
    job_id, export_id = ask(world)
    for _ in range(exports.MAX_TRIES):
        runner(world, tmp_path, 'sys.exit("out of luck")').run_one()
    row = row_of(world, export_id)
    assert row.state == "failed"
    assert row.cause is not None
    assert "out of luck" in row.cause["message"]
    assert left_of(world, job_id, export_id) == []


def test_a_cancel_ends_the_process_and_leaves_nothing(world: World, tmp_path: Path) -> None:
    job_id, export_id = ask(world)
    pid_file = tmp_path / "pid"
    program = f"open({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(300)"
    thread = threading.Thread(target=runner(world, tmp_path, program).run_one)
    thread.start()
    pid = wait_for(lambda: pid_file.exists() and pid_file.read_text(), "the export's process")
    with world.db.session() as session:
        exports.cancel(session, job_id, export_id, ACTOR)
    thread.join(15)
    assert not thread.is_alive()
    assert not Path(f"/proc/{pid}").exists()
    assert row_of(world, export_id).state == "cancelled"
    assert left_of(world, job_id, export_id) == []


@pytest.mark.parametrize("lost", ["weights.bin", MANIFEST_NAME])
def test_a_checkpoint_that_is_gone_is_told(world: World, tmp_path: Path, lost: str) -> None:
    job_id, export_id = ask(world)
    world.storage.delete_prefix(f"jobs/{job_id}/checkpoints/5/attempt-1/{lost}")
    runner(world, tmp_path, "report(ok=True)").run_one()
    row = row_of(world, export_id)
    assert (row.state, row.cause and row.cause["code"]) == ("failed", "checkpoint_invalid")
