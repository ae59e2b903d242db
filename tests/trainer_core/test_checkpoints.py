"""Which checkpoints stay, what one must hold to be announced, and what happens when the disk is full."""

from __future__ import annotations

import json
import math
import resource
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from tests.tiny import make_tiny
from tests.trainer_core.runs import Workshop, setting, wait_until
from trainer_core.checkpoints.keep import CheckpointStore, newest_complete
from trainer_core.checkpoints.manifests import read_manifest, verify
from trainer_core.checkpoints.retention import rank_by_metric, steps_to_remove
from trainer_core.contract import CauseCode, Manifest, Retention, RunConfig, RunFolder
from trainer_core.run.events import EventWriter
from trainer_core.run.faults import Fault

NAMES = [frozenset({"a.weight"}), frozenset({"lm_head.weight", "embed.weight"})]

metrics = st.dictionaries(
    st.integers(1, 50), st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)), max_size=12
)


@given(saved=metrics, n_best=st.integers(1, 4), n_last=st.integers(1, 4), greater=st.booleans(), pin=st.integers(1, 50))
def test_best_last_and_pinned_are_kept_as_separate_promises(
    saved: dict[int, float | None], n_best: int, n_last: int, greater: bool, pin: int
) -> None:
    removed = steps_to_remove(saved, Retention(n_best=n_best, n_last=n_last), greater, {pin})
    kept = saved.keys() - removed
    assert set(sorted(saved)[-n_last:]) <= kept
    finite = {step: value for step, value in saved.items() if value is not None and math.isfinite(value)}
    ordered = sorted(finite.values(), reverse=greater)[:n_best]
    assert sorted((finite[step] for step in kept & finite.keys()), reverse=greater)[: len(ordered)] == ordered
    assert pin not in removed
    assert len(kept) <= n_best + n_last + 1


def test_of_equal_metrics_the_earlier_is_best_and_nan_never_is() -> None:
    assert rank_by_metric({1: math.nan, 2: 0.5, 3: 0.5, 4: None, 5: 0.4}, greater_is_better=False) == [5, 2, 3]
    assert rank_by_metric({1: math.inf, 2: 0.5, 3: 0.6}, greater_is_better=True) == [3, 2]


# ---------------------------------------------------------------------------------------------------------------------
# The store alone
# ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    folder = RunFolder(tmp_path)
    folder.checkpoints.mkdir()
    folder.scratch.mkdir()
    config = RunConfig.model_validate(
        {
            "job_id": "job-1",
            "job_name": "n",
            "attempt": 1,
            "model": {"name": "m", "source": "/m"},
            "data": {"train": "/t", "format": "text"},
        }
    )
    return CheckpointStore(config, folder, EventWriter(folder.events))


def events_of(store: CheckpointStore) -> list[dict[str, Any]]:
    return [json.loads(line) for line in store.folder.events.read_text().splitlines()]


def manifest_for(step: int, loss: float | str = 1.0) -> Manifest:
    return Manifest(
        job_id="job-1",
        attempt=1,
        step=step,
        world_size=1,
        strategy="ddp",
        total_steps=9,
        metrics={"eval_loss": loss},
        files=[],
    )


def write_weights(store: CheckpointStore, step: int, **tensors: np.ndarray[Any, Any]) -> None:
    folder = store.saving_root(step) / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    whole = {"a.weight": np.ones((2, 2), np.float32), "embed.weight": np.ones((3,), np.float32)}
    save_file({**whole, **tensors}, folder / "model.safetensors")


def save(store: CheckpointStore, step: int, loss: float | str = 1.0) -> None:
    write_weights(store, step)
    store.complete(manifest_for(step, loss), NAMES)


def test_a_checkpoint_is_complete_or_not_there(store: CheckpointStore) -> None:
    write_weights(store, 3)
    assert newest_complete(store.folder.checkpoints) is None
    store.complete(manifest_for(3), NAMES)
    assert newest_complete(store.folder.checkpoints) == store.folder.checkpoint(3)
    assert sorted(path.name for path in store.folder.checkpoints.iterdir()) == ["checkpoint-3"]
    record = events_of(store)[-1]
    verify(store.folder.checkpoint(3), read_manifest(store.folder.checkpoint(3), record["manifest_sha256"]))


@pytest.mark.parametrize(
    ("tensors", "code"),
    [
        ({"a.weight": np.array([[1.0, np.nan]], np.float32)}, CauseCode.NON_FINITE_LOSS),
        ({"a.weight": np.array([[np.inf]], np.float32)}, CauseCode.NON_FINITE_LOSS),
        ({"a.weight": np.empty((0, 2), np.float32)}, CauseCode.CHECKPOINT_INVALID),
    ],
)
def test_weights_that_are_empty_or_not_finite_are_not_announced(
    store: CheckpointStore, tensors: dict[str, np.ndarray[Any, Any]], code: CauseCode
) -> None:
    write_weights(store, 3, **tensors)
    with pytest.raises(Fault) as raised:
        store.complete(manifest_for(3), NAMES)
    assert raised.value.cause.code is code
    assert newest_complete(store.folder.checkpoints) is None
    assert not events_of(store)


def test_a_missing_weight_is_not_announced(store: CheckpointStore) -> None:
    write_weights(store, 3)
    with pytest.raises(Fault, match=r"lacks the weights b\.weight"):
        store.complete(manifest_for(3), [*NAMES, frozenset({"b.weight"})])


def test_best_and_last_are_kept_and_the_others_announced_as_removed(store: CheckpointStore) -> None:
    for step, loss in [(2, 0.9), (4, 0.5), (6, 0.7), (8, "NaN"), (9, 0.8)]:
        save(store, step, loss)
    assert sorted(path.name for path in store.folder.checkpoints.iterdir()) == ["checkpoint-4", "checkpoint-9"]
    assert (store.best_step, store.last_step) == (4, 9)
    records = events_of(store)
    assert [record["step"] for record in records if record["type"] == "checkpoint_removed"] == [2, 6, 8]
    assert [record["is_best"] for record in records if record["type"] == "checkpoint"] == [True, True] + [False] * 3


def test_a_pinned_checkpoint_stays(store: CheckpointStore) -> None:
    save(store, 2, 0.9)
    (store.folder.checkpoints / ".keep-2").touch()
    save(store, 4, 0.5)
    save(store, 6, 0.7)
    assert store.folder.checkpoint(2).exists()
    (store.folder.checkpoints / ".keep-2").unlink()
    save(store, 8, 0.8)
    assert not store.folder.checkpoint(2).exists()


def test_half_and_foreign_ones_are_set_aside(store: CheckpointStore) -> None:
    save(store, 2)
    save(store, 3, 0.5)
    foreign = store.folder.checkpoint(7)
    shutil.copytree(store.folder.checkpoint(3), foreign)
    (store.folder.checkpoint(8)).mkdir()
    again = CheckpointStore(store.config, store.folder, EventWriter(store.folder.events))
    again.adopt_existing()
    assert (again.best_step, again.last_step) == (3, 3)
    assert not foreign.exists()
    assert len(list(store.folder.scratch.glob("set-aside-*"))) == 2


def test_no_room_is_told_in_bytes(store: CheckpointStore) -> None:
    save(store, 2)
    with pytest.raises(Fault) as raised:
        store.require_room(10**18)
    cause = raised.value.cause
    assert cause.code is CauseCode.DISK_FULL
    assert cause.details["needed_bytes"] > cause.details["free_bytes"]


# ---------------------------------------------------------------------------------------------------------------------
# Whole runs
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.train
def test_a_metric_that_gets_worse_keeps_best_and_last(workshop: Workshop) -> None:
    """The metric is read upside down, so that it gets worse from the first checkpoint on, and one of each is kept."""
    training = {"max_steps": 10, "lr_scheduler_type": "constant", "save_steps": 2, "eval_strategy": "no"}
    parts = {"greater_is_better": True, "retention": {"n_best": 1, "n_last": 1}}
    outcome = workshop.run("worse", training=training, **parts)
    losses = outcome.eval_losses
    assert losses.keys() == {2, 4, 6, 8, 10}
    best = max(losses, key=lambda step: losses[step])
    assert best == 2
    assert outcome.checkpoints == [best, 10]
    done = outcome.one("done")
    assert (done["best_step"], done["last_step"]) == (best, 10)
    removed = [record["step"] for record in outcome.of_type("checkpoint_removed")]
    assert sorted([*removed, *outcome.checkpoints]) == [2, 4, 6, 8, 10]
    resume = {"checkpoint": str(outcome.folder.checkpoint(10)), "mode": "full"}
    record = outcome.of_type("checkpoint")[-1]
    again = workshop.run(
        "worse-on",
        training={**training, "max_steps": 14},
        resume={**resume, "manifest_sha256": record["manifest_sha256"]},
        **parts,
    )
    assert min(again.series("loss")) == 11


@pytest.mark.train
@pytest.mark.parametrize("metric", ["eval_f1", "loss"])
def test_a_metric_that_is_not_computed_falls_back(workshop: Workshop, metric: str) -> None:
    data = {"eval_fraction": None} if metric == "loss" else {}
    outcome = workshop.run(f"by-{metric}", metric_for_best=metric, data=data)
    assert outcome.codes == [0, 0]
    assert outcome.one("done")["best_step"] == 6
    told = [note for note in outcome.of_type("note") if metric in note["message"]]
    assert len(told) == (1 if metric == "eval_f1" else 0)


@pytest.mark.train
def test_a_run_that_never_saves_still_leaves_its_last_checkpoint(workshop: Workshop) -> None:
    outcome = workshop.run("unsaved", training={"save_strategy": "no", "eval_strategy": "no"})
    assert outcome.checkpoints == [6]


@pytest.mark.train
@pytest.mark.parametrize("strategy", ["epoch", "best"])
def test_every_save_strategy_saves_once_a_step(workshop: Workshop, strategy: str) -> None:
    outcome = workshop.run(
        f"save-{strategy}", training={"save_strategy": strategy, "eval_strategy": "epoch", "max_steps": 4}
    )
    assert [record["step"] for record in outcome.of_type("checkpoint")] == [2, 4]
    assert [record["step"] for record in outcome.of_type("eval")] == [2, 4]


@pytest.mark.train
def test_a_full_disk_during_a_save_keeps_the_last_good_checkpoint(workshop: Workshop) -> None:
    """After the first checkpoint no file may grow to a weights file's size any more (what `ulimit -f` does)."""
    weights = workshop.straight("ddp", "full").folder.checkpoint(3) / "model.safetensors"
    training = {"save_steps": 1, "eval_strategy": "no", "max_steps": 2000, "logging_steps": 1000}
    folder = workshop.folder("disk-full", adapter=None, training=training)
    thread, outcome = workshop.start_in_background(folder)
    wait_until(lambda: bool(outcome.of_type("checkpoint")))
    limit = weights.stat().st_size - 1
    for pid in outcome.one("started")["pids"]:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, limit))
    thread.join(timeout=60)
    cause = outcome.one("error")["cause"]
    assert cause["code"] == "disk_full"
    assert outcome.codes[0] == 1
    announced = {record["step"] for record in outcome.of_type("checkpoint")}
    removed = {record["step"] for record in outcome.of_type("checkpoint_removed")}
    assert set(outcome.checkpoints) == announced - removed
    for step in outcome.checkpoints:
        verify(folder.checkpoint(step), read_manifest(folder.checkpoint(step)))
    # What rank 0 wrote is gone at once; a rank that came to the save after it may have left its own small part.
    left = [path.stat().st_size for path in folder.checkpoints.glob(".saving-*/**/*") if path.is_file()]
    assert sum(left) < 64 * 1024


@pytest.mark.train
def test_tied_weights_are_saved(workshop: Workshop, tmp_path: Path) -> None:
    """The output layer is the embedding: one tensor under one of its two names, at every kind of save."""
    tied = make_tiny(tmp_path / "tied", tied=True)
    model = {"name": "tied", "source": str(tied)}
    for kind in ("ddp", "zero3"):
        parts = setting(kind, "full")
        outcome = workshop.run(f"tied-{kind}", **parts, model=model, training={"max_steps": 1})
        assert outcome.codes == [0, 0]
        names = load_file(outcome.folder.checkpoint(1) / "model.safetensors").keys()
        assert "model.embed_tokens.weight" in names
