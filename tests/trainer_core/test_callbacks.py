"""Stopping, watching and telling while a run goes on."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.trainer_core.runs import Outcome, Workshop, setting, wait_until

pytestmark = pytest.mark.train

LONG = {"max_steps": 3000, "save_strategy": "no", "eval_strategy": "no"}


def stop_after_two_steps(workshop: Workshop, name: str, request: str, **parts: object) -> Outcome:
    folder = workshop.folder(name, **parts)
    thread, outcome = workshop.start_in_background(folder)
    wait_until(lambda: len(outcome.of_type("metrics")) >= 2)
    folder.stop.write_text(request)
    thread.join(timeout=60)
    return outcome


@pytest.mark.parametrize("kind", ["ddp", "zero3"])
def test_a_stop_file_ends_all_ranks_at_a_step(workshop: Workshop, kind: str) -> None:
    parts = setting(kind, "lora") | {"training": LONG}
    outcome = stop_after_two_steps(workshop, f"stop-{kind}", '{"reason": "cancel"}', **parts)
    assert outcome.codes == [75, 75]
    stopped = outcome.one("stopped")
    assert (stopped["reason"], stopped["checkpoint_step"]) == ("cancel", None)
    assert 2 <= stopped["step"] < 3000
    assert outcome.records[-1] == stopped
    assert outcome.checkpoints == []


def test_a_stop_that_asks_for_a_checkpoint_gets_one(workshop: Workshop) -> None:
    request = json.dumps({"reason": "pause", "save_checkpoint": True})
    outcome = stop_after_two_steps(workshop, "pause", request, training=LONG)
    stopped = outcome.one("stopped")
    assert stopped["reason"] == "pause"
    assert outcome.checkpoints == [stopped["checkpoint_step"]] == [stopped["step"]]


def test_an_empty_stop_file_means_cancel(workshop: Workshop) -> None:
    outcome = stop_after_two_steps(workshop, "touched", "", training=LONG)
    assert outcome.one("stopped")["reason"] == "cancel"


def test_a_stop_before_the_first_step(workshop: Workshop) -> None:
    folder = workshop.folder("stop-early")
    folder.stop.write_text('{"reason": "preempt"}')
    outcome = workshop.start(folder)
    assert outcome.codes == [75, 75]
    assert outcome.one("stopped")["reason"] == "preempt"
    assert not outcome.of_type("metrics")


def test_a_stop_during_evaluation(workshop: Workshop) -> None:
    """A long evaluation at step 1 does not have to end first."""
    rows = workshop.root / "many.jsonl"
    rows.write_text(workshop.rows.read_text() * 400)
    data = {"eval": str(rows), "eval_fraction": None}
    training = {**LONG, "eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 1}
    folder = workshop.folder("stop-eval", data=data, training=training)
    thread, outcome = workshop.start_in_background(folder)
    wait_until(lambda: any(record["phase"] == "evaluating" for record in outcome.of_type("phase")))
    folder.stop.touch()
    thread.join(timeout=60)
    assert outcome.codes == [75, 75]
    assert outcome.one("stopped")["step"] == 1
    assert not outcome.of_type("eval")


@pytest.mark.parametrize("kind", ["ddp", "zero2"])
def test_a_loss_that_is_not_finite_ends_the_run(workshop: Workshop, kind: str) -> None:
    training = {
        "learning_rate": 1e30,
        "max_grad_norm": 0.0,
        "max_steps": 50,
        "eval_strategy": "no",
        "lr_scheduler_type": "constant",
    }
    parts = setting(kind, "full")
    outcome = workshop.run(f"nan-{kind}", **{**parts, "training": training})
    cause = outcome.one("error")["cause"]
    assert cause["code"] == "non_finite_loss"
    assert outcome.codes[0] == 1
    metrics = outcome.of_type("metrics")
    assert metrics[-1]["values"]["loss"] in ("NaN", "Infinity")
    assert metrics[-1]["step"] == cause["details"]["step"]
    assert all(step < cause["details"]["step"] for step in outcome.checkpoints)


def test_a_rank_that_dies_is_told_by_the_other(workshop: Workshop) -> None:
    folder = workshop.folder("rank-dies", training=LONG)
    thread, outcome = workshop.start_in_background(folder)
    wait_until(lambda: bool(outcome.of_type("metrics")))
    os.kill(outcome.one("started")["pids"][1], signal.SIGKILL)
    thread.join(timeout=60)
    assert outcome.codes[1] == -signal.SIGKILL
    # Rank 0 may be ended by the launcher before gloo tells it.
    if outcome.of_type("error"):
        assert outcome.one("error")["cause"]["code"] == "rank_died"


def test_a_termination_signal_ends_everything_at_once(workshop: Workshop) -> None:
    folder = workshop.folder("sigterm", training=LONG)
    thread, outcome = workshop.start_in_background(folder)
    wait_until(lambda: bool(outcome.of_type("metrics")))
    for pid in outcome.one("started")["pids"]:
        os.kill(pid, signal.SIGTERM)
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert outcome.codes == [-signal.SIGTERM, -signal.SIGTERM]


def test_metrics_hold_what_a_step_cost(workshop: Workshop) -> None:
    records = workshop.straight("ddp", "lora").of_type("metrics")
    for record in records:
        values = record["values"]
        assert values.keys() >= {"loss", "learning_rate", "grad_norm", "tokens_per_second", "tokens_seen"}
        assert values["memory_bytes"] == max(values["memory_bytes_rank0"], values["memory_bytes_rank1"]) > 10**8
        assert record["epoch"] > 0
    seen = [record["values"]["tokens_seen"] for record in records]
    assert seen == sorted(seen)
    tokens_of_two_epochs = seen[3]
    assert seen[1] * 2 == tokens_of_two_epochs
