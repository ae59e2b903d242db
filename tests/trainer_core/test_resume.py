"""Starting from a checkpoint: exactly where the run was, or not at all."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer_core.runs import Workshop, resume_from, setting, wait_until
from trainer_core.checkpoints.manifests import describe_files, read_manifest, write_manifest
from trainer_core.checkpoints.pickles import foreign_names, refuse_foreign_pickles
from trainer_core.contract import MANIFEST_NAME, Manifest, ManifestFile
from trainer_core.run.faults import Fault

pytestmark = pytest.mark.train


@pytest.mark.parametrize("weights", ["lora", "full"])
@pytest.mark.parametrize("kind", ["ddp", "zero2", "zero3"])
def test_a_resumed_run_continues_the_curve_exactly(workshop: Workshop, kind: str, weights: str) -> None:
    straight = workshop.straight(kind, weights)
    resume = resume_from(straight.folder.checkpoint(3))
    outcome = workshop.run(f"resumed-{kind}-{weights}", resume=resume, **setting(kind, weights))
    assert outcome.codes == [0, 0]
    assert outcome.one("started")["resumed_from_step"] == 3
    for figure in ("loss", "learning_rate", "grad_norm", "tokens_seen"):
        expected = {step: value for step, value in straight.series(figure).items() if step > 3}
        assert outcome.series(figure) == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert outcome.eval_losses[6] == pytest.approx(straight.eval_losses[6], rel=1e-6)
    assert outcome.one("done")["step"] == 6
    log = (outcome.folder.output / "trainer_log.jsonl").read_text().splitlines()
    losses = {line["step"]: line["loss"] for line in map(json.loads, log) if line["loss"]}
    assert losses == pytest.approx(straight.series("loss"), rel=1e-6)


def test_a_killed_run_resumes_from_its_newest_complete_checkpoint(workshop: Workshop) -> None:
    """kill -9 in the middle of a step; a half-written checkpoint lies beside the whole one."""
    training = {"max_steps": 60, "learning_rate": 1e-3, "save_steps": 20, "eval_strategy": "no"}
    data = {"eval_fraction": None}
    parts: dict[str, Any] = {"training": training, "data": data, **setting("zero2", "lora")}
    straight = workshop.run("unkilled", **parts)
    folder = workshop.folder("killed", **parts)
    thread, killed = workshop.start_in_background(folder)
    wait_until(lambda: bool(killed.of_type("checkpoint")))
    for pid in killed.one("started")["pids"]:
        os.kill(pid, signal.SIGKILL)
    thread.join(timeout=60)
    assert killed.codes == [-signal.SIGKILL, -signal.SIGKILL]
    saved_at = killed.checkpoints[-1]
    assert saved_at < 60
    half = folder.checkpoints / ".saving-59" / "checkpoint-59"
    half.mkdir(parents=True)
    shutil.copytree(folder.checkpoint(saved_at), folder.checkpoint(58), ignore=shutil.ignore_patterns(MANIFEST_NAME))

    config = workshop.config(**parts, attempt=2, resume=resume_from(folder.checkpoint(saved_at)))
    folder.config.write_text(json.dumps(config))
    resumed = workshop.start(folder)
    assert resumed.codes == [0, 0]
    for figure in ("loss", "learning_rate"):
        expected = {step: value for step, value in straight.series(figure).items() if step > saved_at}
        assert resumed.series(figure) == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert not half.exists()
    assert 58 not in resumed.checkpoints
    assert any("checkpoint-58" in note["message"] for note in resumed.of_type("note"))


def test_weights_alone_start_a_fresh_schedule(workshop: Workshop) -> None:
    checkpoint = workshop.straight("ddp", "lora").folder.checkpoint(6)
    for weights in ("lora", "full"):
        straight = workshop.straight("ddp", weights)
        checkpoint = straight.folder.checkpoint(6)
        # One process only: weights do not care how many ranks saved them.
        outcome = workshop.run(f"from-{weights}", resume=resume_from(checkpoint, "weights"), **setting("one", weights))
        assert outcome.codes == [0]
        assert outcome.one("started")["resumed_from_step"] is None
        assert outcome.series("learning_rate") == straight.series("learning_rate")
        assert outcome.series("loss")[1] < straight.series("loss")[1]


def test_another_number_of_processes_is_refused(workshop: Workshop) -> None:
    resume = resume_from(workshop.straight("ddp", "lora").folder.checkpoint(3))
    outcome = workshop.run("fewer-ranks", resume=resume, **setting("one", "lora"))
    cause = outcome.one("error")["cause"]
    assert cause["code"] == "world_size_mismatch"
    assert "weights" in cause["hint"]
    assert not outcome.of_type("metrics")


def test_another_stage_is_refused(workshop: Workshop) -> None:
    resume = resume_from(workshop.straight("zero2", "lora").folder.checkpoint(3))
    outcome = workshop.run("other-stage", resume=resume, **setting("zero3", "lora"))
    assert outcome.one("error")["cause"]["code"] == "world_size_mismatch"


def test_a_longer_plan_would_bend_the_rate(workshop: Workshop) -> None:
    resume = resume_from(workshop.straight("ddp", "lora").folder.checkpoint(6))
    outcome = workshop.run("longer", resume=resume, training={"max_steps": 10})
    cause = outcome.one("error")["cause"]
    assert (cause["code"], cause["param"]) == ("config_invalid", "training.lr_scheduler_type")


def test_nothing_left_to_do_is_said(workshop: Workshop) -> None:
    resume = resume_from(workshop.straight("ddp", "lora").folder.checkpoint(6))
    cause = workshop.run("finished-before", resume=resume).one("error")["cause"]
    assert (cause["code"], cause["param"]) == ("config_invalid", "training.max_steps")


def test_other_options_are_not_the_same_curve(workshop: Workshop) -> None:
    resume = resume_from(workshop.straight("ddp", "lora").folder.checkpoint(3))
    cause = workshop.run("other-rate", resume=resume, training={"learning_rate": 1e-4}).one("error")["cause"]
    assert cause["code"] == "config_invalid"
    assert "mode: weights" in cause["hint"]


def test_a_constant_rate_goes_on_after_its_end(workshop: Workshop) -> None:
    training = {"lr_scheduler_type": "constant", "max_steps": 4, "save_steps": 2, "eval_steps": 2}
    first = workshop.run("constant", training=training)
    resume = resume_from(first.folder.checkpoint(4))
    outcome = workshop.run("constant-on", resume=resume, training={**training, "max_steps": 6})
    assert list(outcome.series("loss")) == [5, 6]
    assert set(outcome.series("learning_rate").values()) == {1e-3}


# ---------------------------------------------------------------------------------------------------------------------
# Checkpoints that are not ours any more
# ---------------------------------------------------------------------------------------------------------------------


class Bomb:
    """A pickle of it creates a file as soon as it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self.path), "w"))


@pytest.fixture
def sent_checkpoint(workshop: Workshop, tmp_path: Path) -> Path:
    return Path(shutil.copytree(workshop.straight("zero2", "lora").folder.checkpoint(3), tmp_path / "sent"))


def sign_again(checkpoint: Path) -> None:
    """What a sender would do: a manifest that fits the changed files."""
    manifest = read_manifest(checkpoint)
    write_manifest(checkpoint, manifest.model_copy(update={"files": describe_files(checkpoint)}))


@pytest.mark.parametrize(
    "name",
    ["rng_state_0.pth", "scheduler.pt", "global_step3/zero_pp_rank_1_mp_rank_00_optim_states.pt", "training_args.bin"],
)
def test_a_pickle_that_runs_code_is_refused_and_does_not_run(
    workshop: Workshop, sent_checkpoint: Path, tmp_path: Path, name: str
) -> None:
    trace = tmp_path / "trace"
    torch.save({"python": Bomb(trace)}, sent_checkpoint / name)
    sign_again(sent_checkpoint)
    resume = resume_from(sent_checkpoint)
    outcome = workshop.run(f"bomb-{name.replace('/', '-')}", resume=resume, **setting("zero2", "lora"))
    cause = outcome.one("error")["cause"]
    assert cause["code"] == "checkpoint_invalid"
    assert Path(name).name in cause["message"]
    assert not trace.exists()
    assert not outcome.of_type("metrics")


def test_the_bomb_is_one(tmp_path: Path) -> None:
    """Without the look beforehand the same file does run."""
    torch.save({"python": Bomb(tmp_path / "trace")}, tmp_path / "bomb.pt")
    torch.load(tmp_path / "bomb.pt", weights_only=False)["python"].close()
    assert (tmp_path / "trace").exists()


def test_a_plain_pickle_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "optimizer.pt").write_bytes(pickle.dumps(Bomb(tmp_path / "trace")))
    with pytest.raises(Fault, match=r"optimizer\.pt"):
        refuse_foreign_pickles(tmp_path)
    assert not (tmp_path / "trace").exists()


def test_our_own_checkpoints_hold_nothing_foreign(workshop: Workshop) -> None:
    for kind in ("ddp", "zero0", "zero1", "zero2", "zero3"):
        for weights in ("lora", "full"):
            refuse_foreign_pickles(workshop.straight(kind, weights).folder.checkpoint(3))


def test_a_name_beside_the_allowed_ones_is_foreign(tmp_path: Path) -> None:
    torch.save({"rng": Bomb(tmp_path / "trace")}, tmp_path / "rng_state.pth")
    assert foreign_names(tmp_path / "rng_state.pth") == ["io.open"]


def change_a_byte(checkpoint: Path) -> None:
    path = checkpoint / "adapter_model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def cut_a_file(checkpoint: Path) -> None:
    path = checkpoint / "scheduler.pt"
    path.write_bytes(path.read_bytes()[:-20])


def lose_a_file(checkpoint: Path) -> None:
    (checkpoint / "rng_state_0.pth").unlink()


def slip_a_file_in(checkpoint: Path) -> None:
    (checkpoint / "global_step4").mkdir()
    (checkpoint / "global_step4" / "x.pt").write_bytes(b"x")


def link_a_folder_in(checkpoint: Path) -> None:
    (checkpoint / "global_step9").symlink_to("/etc")


def lose_the_manifest(checkpoint: Path) -> None:
    (checkpoint / MANIFEST_NAME).unlink()


def sign_other_files(checkpoint: Path) -> None:
    (checkpoint / "README.md").write_text("other")
    sign_again(checkpoint)


@pytest.mark.parametrize(
    "damage",
    [change_a_byte, cut_a_file, lose_a_file, slip_a_file_in, link_a_folder_in, lose_the_manifest, sign_other_files],
)
def test_a_checkpoint_that_is_not_what_was_saved_is_refused(
    workshop: Workshop, sent_checkpoint: Path, damage: Any
) -> None:
    resume = resume_from(sent_checkpoint)
    damage(sent_checkpoint)
    outcome = workshop.run(f"damaged-{damage.__name__}", resume=resume, **setting("zero2", "lora"))
    assert outcome.one("error")["cause"]["code"] == "checkpoint_invalid"
    assert not outcome.of_type("metrics")


def test_a_manifest_names_every_file(workshop: Workshop) -> None:
    checkpoint = workshop.straight("zero3", "full").folder.checkpoint(6)
    manifest = Manifest.model_validate_json((checkpoint / MANIFEST_NAME).read_bytes())
    files = {path.relative_to(checkpoint).as_posix() for path in checkpoint.rglob("*") if path.is_file()}
    assert {file.path for file in manifest.files} == files - {MANIFEST_NAME}
    assert all(isinstance(file, ManifestFile) and file.size_bytes > 0 for file in manifest.files)
