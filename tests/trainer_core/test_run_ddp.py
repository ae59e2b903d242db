"""One run from config.json to finished files, on one and on two real processes, and through the real launchers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer_core.runs import ENVIRONMENT, REPOSITORY, Outcome, Workshop, free_port

pytestmark = pytest.mark.train


@pytest.mark.parametrize("weights", ["lora", "full"])
def test_two_processes_train_like_one(workshop: Workshop, weights: str) -> None:
    one, two = workshop.straight("one", weights), workshop.straight("ddp", weights)
    assert one.codes == [0]
    assert two.codes == [0, 0]
    for figure in ("loss", "grad_norm", "learning_rate", "tokens_seen"):
        assert one.series(figure).keys() == {1, 2, 3, 4, 5, 6}
        assert two.series(figure) == pytest.approx(one.series(figure), rel=1e-4)
    assert two.eval_losses == pytest.approx(one.eval_losses, rel=1e-5)


def test_records_tell_the_story_in_order(workshop: Workshop) -> None:
    outcome = workshop.straight("ddp", "lora")
    records = outcome.records
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert records[0]["type"] == "started"
    assert records[0]["world_size"] == 2
    assert len(set(records[0]["pids"])) == 2
    phases = [record["phase"] for record in outcome.of_type("phase")]
    assert phases[:3] == ["tokenizing", "loading", "training"]
    assert phases[-1] == "exporting"
    done = outcome.one("done")
    assert (done["step"], done["total_steps"], done["last_step"]) == (6, 6, 6)
    assert records[-1] == done


def test_plan_holds_what_really_runs(workshop: Workshop) -> None:
    plan = workshop.straight("ddp", "lora").one("plan")
    assert (plan["wrapped_model"], plan["optimizer"], plan["precision"]) == ("DistributedDataParallel", "AdamW", "fp32")
    assert (plan["total_steps"], plan["n_train_rows"], plan["n_eval_rows"]) == (6, 16, 8)
    assert plan["global_batch_size"] == 8
    # q_proj 32 -> 32 and v_proj 32 -> 16, rank 4, two layers.
    assert plan["trainable_parameters"] == 2 * 4 * ((32 + 32) + (32 + 16))
    assert plan["total_parameters"] == sum(plan["parameters_by_dtype"].values())
    assert plan["trained_tokens_per_epoch"] > 0
    assert any("Pad token" in note for note in plan["report"]["notes"])


def test_each_rank_writes_its_own_log(workshop: Workshop) -> None:
    folder = workshop.straight("ddp", "lora").folder
    assert "loss" in folder.rank_log(0).read_text()
    assert folder.rank_log(1).exists()


def test_a_plan_that_disagrees_is_refused_before_the_first_step(workshop: Workshop) -> None:
    outcome = workshop.run("wrong-plan", planned_steps=7)
    cause = outcome.one("error")["cause"]
    assert cause["code"] == "config_invalid"
    assert "7 steps" in cause["message"]
    assert not outcome.of_type("metrics")
    assert outcome.codes[0] == 2


def test_another_number_of_processes_is_refused(workshop: Workshop) -> None:
    folder = workshop.folder("lonely")
    code = subprocess.run(
        [sys.executable, "-m", "trainer_core", "run", str(folder.root)], cwd=REPOSITORY, env=ENVIRONMENT, check=False
    ).returncode
    assert code == 2
    cause = Outcome(folder).one("error")["cause"]
    assert (cause["code"], cause["param"]) == ("config_invalid", "parallel.n_processes")


def test_a_config_that_is_none_is_told_by_field(workshop: Workshop) -> None:
    outcome = workshop.run("misspelt", adapter={"alhpa": 3})
    cause = outcome.one("error")["cause"]
    assert (cause["code"], cause["param"]) == ("config_invalid", "adapter.alhpa")
    assert outcome.codes[0] == 2


def test_a_module_that_the_model_lacks_is_told_with_the_nearest(workshop: Workshop) -> None:
    outcome = workshop.run("wrong-module", adapter={"target_modules": ["q_prj"]})
    cause = outcome.one("error")["cause"]
    assert (cause["code"], cause["param"]) == ("config_invalid", "adapter.target_modules[0]")
    assert "q_proj" in cause["hint"]


def test_a_model_that_is_not_there(workshop: Workshop, tmp_path: Path) -> None:
    outcome = workshop.run("no-model", model={"source": str(tmp_path / "nowhere")})
    assert outcome.one("error")["cause"]["code"] == "model_unavailable"


@pytest.mark.parametrize(("batch", "accumulation"), [(8, 1), (4, 2), (2, 4)])
def test_loss_does_not_depend_on_how_a_batch_is_cut(workshop: Workshop, batch: int, accumulation: int) -> None:
    training = {
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": accumulation,
        "learning_rate": 0.0,
        "max_steps": 2,
    }
    outcome = workshop.run(f"cut-{batch}-{accumulation}", training=training, parallel={"n_processes": 1})
    straight = workshop.straight("one", "lora")
    assert outcome.series("loss")[1] == pytest.approx(straight.series("loss")[1], rel=1e-5)
    assert outcome.series("grad_norm")[1] == pytest.approx(straight.series("grad_norm")[1], rel=1e-4)


def test_the_short_last_group_is_not_scaled_down(workshop: Workshop, tmp_path: Path) -> None:
    """Five equal rows, batch 1, accumulation 2: the third step has one row, and all steps show the same loss."""
    rows = tmp_path / "equal.jsonl"
    row = {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day"}]}
    rows.write_text(f"{json.dumps(row)}\n" * 5)
    training = {
        "per_device_train_batch_size": 1,
        "learning_rate": 0.0,
        "max_steps": -1,
        "num_train_epochs": 1,
        "eval_strategy": "no",
    }
    data = {"train": str(rows), "eval_fraction": None}
    outcome = workshop.run("short-group", training=training, data=data, parallel={"n_processes": 1})
    losses, norms = outcome.series("loss"), outcome.series("grad_norm")
    assert losses.keys() == {1, 2, 3}
    assert losses[3] == pytest.approx(losses[1], rel=1e-5)
    assert norms[3] == pytest.approx(norms[1], rel=1e-4)


def test_activation_checkpointing_trains_the_adapter_alike(workshop: Workshop) -> None:
    outcome = workshop.run("recompute", training={"activation_checkpointing": True})
    assert outcome.series("loss") == pytest.approx(workshop.straight("ddp", "lora").series("loss"), rel=1e-5)


def test_bf16_is_really_used(workshop: Workshop) -> None:
    outcome = workshop.run("bf16", training={"bf16": True})
    assert outcome.one("plan")["precision"] == "bf16"
    assert outcome.series("loss") == pytest.approx(workshop.straight("ddp", "lora").series("loss"), rel=5e-3)


@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_real_launchers(workshop: Workshop, launcher: str) -> None:
    """The ranks that other tests fork are started here as they are in earnest."""
    kind = "ddp" if launcher == "torchrun" else "zero2"
    parts = {} if launcher == "torchrun" else {"parallel": {"strategy": "deepspeed", "zero_stage": 2}}
    folder = workshop.folder(f"by-{launcher}", **parts)
    commands = {
        "torchrun": [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"],
        "deepspeed": [
            *[sys.executable, "-m", "deepspeed.launcher.runner", "--num_gpus", "2"],
            *["--master_port", str(free_port())],
        ],
    }
    command = [*commands[launcher], "--module", "trainer_core", "run", str(folder.root)]
    environment = {
        **ENVIRONMENT,
        "DS_ACCELERATOR": "cpu",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    ended = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    outcome = Outcome(folder)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert outcome.one("done")["step"] == 6
    assert outcome.series("loss") == pytest.approx(workshop.straight(kind, "lora").series("loss"), rel=1e-5)
